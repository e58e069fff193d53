"""An explained step as text for the terminal.

First the step, then its result, then the groups it is compared with and the arithmetic
of its advantage. Texts of worlds and models are shortened, their control characters
escaped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import join
from textwrap import fill

from rich.table import Table
from rich.text import Text

from agentcli.credit.equations import Line, Member, ScoreGroup
from agentcli.credit.explain import ExplainedStep, Explanation, Peer, Written
from agentcli.records.faults import one_line, shown
from agentcli.reports.tables import values_line

LONGEST = 160
"""Characters of an observation or action."""
MEMBERS = 12
"""Rows of a group's table."""
LABEL = 13
"""Columns of the word before a fact."""
INDENT = " " * 8
_GAP = re.compile(r"(?<=\S) {2,}")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def excerpt(text: str | None, longest: int = LONGEST) -> str:
    """`text` on one line, its middle left out where it is long; "-" for none."""
    if text is None:
        return "-"
    # Only the beginning of a very long text is looked at.
    line = shown(one_line(text[: 20 * longest]))
    if len(line) <= longest:
        return line
    begin = line[: longest * 2 // 3]
    end = line[-longest // 4 :]
    return f"{begin} ... {end}"


def explanation(explained: ExplainedStep) -> Iterator[str | Table]:
    """Lines and tables, top to bottom."""
    step = explained.explanation
    yield from _step(explained, step)
    yield ""
    yield from _result(explained, step)
    yield from _account(step)


def folded(line: str, width: int) -> str:
    """A line of the text in as many as it needs; a meaning stands below its equation."""
    if len(line) <= width:
        return line
    if not line.startswith(" "):
        return fill(line, width, subsequent_indent=" " * LABEL)
    equation, *meaning = _GAP.split(line.rstrip())
    lines = [fill(equation, width, subsequent_indent=INDENT)]
    for text in meaning:
        lines.append(fill(text, width, initial_indent=INDENT, subsequent_indent=INDENT))
    return "\n".join(lines)


def _step(explained: ExplainedStep, step: Explanation) -> Iterator[str]:
    place = f"{explained.trees}:{explained.line}"
    kind = excerpt(step.kind)
    facts = ", ".join(_facts(step))
    moves = ", ".join(step.moves)
    yield f"task         {excerpt(step.task)} ({place}), kind {kind}"
    yield f"instruction  {excerpt(step.instruction)}"
    yield f"step         {step.step}: {facts}"
    yield f"saw          {excerpt(step.observation)}"
    yield f"did          {excerpt(moves or step.action)}"
    yield f"then         {excerpt(step.next_observation)}"


def _facts(step: Explanation) -> Iterator[str]:
    if step.parent is None:
        yield "the first of its trajectory"
    else:
        yield f"after step {step.parent}"
    siblings = step.siblings
    noun = "other" if siblings == 1 else "others"
    yield f"{siblings or 'no'} {noun} from the same state"
    if step.tag:
        yield f"tag {excerpt(step.tag, 40)}"
    if step.validity != "valid":
        yield step.validity
    if step.outcome:
        yield f"ends in {step.outcome}"


def _result(explained: ExplainedStep, step: Explanation) -> Iterator[str]:
    switches = values_line(step.changed) or "with its defaults"
    yield f"method       {step.method}, {switches}"
    is_masked = step.masked is not None
    if is_masked:
        reason = ""
        if step.why_masked:
            reason = f": {step.why_masked}"
        yield f"advantage    none, masked as {excerpt(step.masked)!r}{reason}"
    else:
        yield f"advantage    {_signed(step.advantage)}"
    rows = [_signed(advantage) for advantage in step.rows]
    if len(rows) > 1:
        advantages = ", ".join(rows[:MEMBERS])
        if len(rows) > MEMBERS:
            advantages += ", ..."
        yield (
            f"rows         this is row {step.row} of {len(rows)} of the step, one "
            f"per leaf below it: {advantages}"
        )
    if not is_masked and not step.account:
        parts = values_line(step.parts) or "-"
        yield f"parts        {parts} (the method gives no account of its arithmetic)"
    if explained.written is not None:
        run = Path(explained.trees).parent
        method = explained.written.method or step.method
        yield f"written      {_written(explained.written, run, method)}"


def _written(written: Written, run: Path, method: str) -> str:
    """What RUN's credit file says of the same row."""
    file = written.file
    if written.same:
        return f"the same in {file}"
    differences = []
    for name, (there, here) in written.settings.items():
        differences.append(f"credit.{name} {there} there, {here} here")
    reason = ", ".join(differences)
    if not reason:
        again = ["agentcli", "assign-credit", str(run), "--method", method]
        command = join([*again, "--overwrite"])
        # A user's own method may have changed since.
        of = "these trees, or of the method," if ":" in method else "these trees"
        reason = f"not of {of} as they are; write it again with: {command}"
    return f"{_signed(written.advantage)} in {file}: {reason}"


def _account(step: Explanation) -> Iterator[str | Table]:
    """Groups and numbers, in the order in which they are needed."""
    numbers: dict[str, float] = {}
    after_group = True
    for entry in step.account:
        if isinstance(entry, ScoreGroup):
            yield ""
            yield from _group(entry, step.peers)
            numbers |= entry.statistics
            after_group = True
            continue
        if after_group:
            yield ""
        after_group = False
        yield _equation(entry, numbers)
        numbers[entry.name] = entry.value


def _group(group: ScoreGroup, peers: Mapping[int, Peer]) -> Iterator[str | Table]:
    members = group.members
    spread = ""
    if group.std is not None:
        spread = f", std {group.std:.10g}"
    yield f"  group {group.name}: {excerpt(group.meaning, 300)}"
    yield (
        f"    {len(members)} entries, mean {group.mean:.10g}{spread}, W "
        f"{group.weight:.10g}"
    )
    # A member that is a copy of the environment has no action of its own.
    are_steps = group.of == "step"
    texts = ["action", "ends in"] if are_steps else []
    table = Table(show_edge=False, pad_edge=False, box=None)
    for head in ["", group.of, *texts, "score", "weight"]:
        is_text = head in texts
        table.add_column(
            head,
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
        )
    chosen = _chosen(members)
    for member in chosen:
        cells = ["    >" if member.explained else "     ", str(member.step)]
        if are_steps:
            peer = peers[member.step]
            cells += [excerpt(peer.action, 60), peer.outcome or "-"]
        cells += [f"{member.score:.10g}", f"{member.weight:.10g}"]
        # As Text, so that what a world wrote is not read as markup.
        table.add_row(*map(Text, cells))
    yield table
    hidden = len(members) - len(chosen)
    if hidden > 0:
        yield f"    ... and {hidden} more"


def _chosen(members: Sequence[Member]) -> list[Member]:
    """The members that are shown: the step's own before others, in their order."""
    places = [place for place, member in enumerate(members) if member.explained]
    chosen = set(places[: MEMBERS // 2])
    for place in range(len(members)):
        if len(chosen) == MEMBERS:
            break
        chosen.add(place)
    return [members[place] for place in sorted(chosen)]


def _equation(line: Line, numbers: Mapping[str, float]) -> str:
    """A number: its name, its formula, the formula with numbers, and its value."""
    value = f"{line.value:.10g}"
    sides = [line.name]
    if line.formula is not None:

        def number(name: re.Match[str]) -> str:
            value = numbers[name.group()]
            return f"{value:.10g}" if value >= 0 else f"({value:.10g})"

        filled = _NAME.sub(number, line.formula)
        sides += [line.formula, filled]
    different = dict.fromkeys(sides)
    different.pop(value, None)
    equation = " = ".join([*different, value])
    text = f"  {equation}".ljust(70)
    text += f"  {line.meaning}"
    if line.source:
        text += f" [{line.source}]"
    return text


def _signed(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:+.10g}"
