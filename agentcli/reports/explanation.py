"""An explained step as text for the terminal: the step, the groups it is compared with,
the arithmetic of its advantage.

Made from plain values (the JSON of analysis.explain). Texts of worlds and models are
shortened, their control characters escaped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Any

from rich.table import Table
from rich.text import Text

from agentcli.records.faults import shown
from agentcli.reports.tables import credit_line

LONGEST = 160
"""Characters of an observation or action."""
MEMBERS = 12
"""Rows of a group's table."""
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def excerpt(text: str | None, longest: int = LONGEST) -> str:
    """`text` on one line, its middle left out where it is long; "-" for none."""
    if text is None:
        return "-"
    line = shown(" ".join(text[: 20 * longest].split()))
    return (
        line
        if len(line) <= longest
        else f"{line[: longest * 2 // 3]} ... {line[-longest // 4 :]}"
    )


def explanation(told: Mapping[str, Any]) -> Iterator[str | Table]:
    """Lines and tables, top to bottom."""
    about = told["explanation"]
    yield from _step(told, about)
    yield ""
    yield from _result(told, about)
    numbers: dict[str, float] = {}
    before = ""
    for entry in about["account"]:
        if before != "group":
            yield from [""] if entry["entry"] == "group" or not before else []
        before = entry["entry"]
        if before == "group":
            yield from _group(entry, about["peers"])
            yield ""
            parts = {"mean": "mean", "std": "std", "W": "weight"}
            numbers |= {
                f"{part}_{entry['name']}": entry[field] for part, field in parts.items()
            }
        else:
            yield _line(entry, numbers)
            numbers[entry["name"]] = entry["value"]


def _step(told: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"task         {excerpt(about['task'])} ({told['trees']}:{told['line']}), "
        f"kind {excerpt(about['kind'])}"
    )
    yield f"instruction  {excerpt(about['instruction'])}"
    after = (
        "the first of its trajectory"
        if about["parent"] is None
        else f"after step {about['parent']}"
    )
    facts = [
        after,
        f"{about['siblings'] or 'no'} other{'s' if about['siblings'] != 1 else ''} "
        "from the same state",
    ]
    facts += [f"tag {excerpt(about['tag'], 40)}"] if about["tag"] else []
    facts += [about["validity"]] if about["validity"] != "valid" else []
    facts += [f"ends in {about['outcome']}"] if about["outcome"] else []
    yield f"step         {about['step']}: {', '.join(facts)}"
    yield f"saw          {excerpt(about['observation'])}"
    yield f"did          {excerpt(', '.join(about['moves']) or about['action'])}"
    yield f"then         {excerpt(about['next_observation'])}"


def _result(told: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"method       {about['method']}, "
        f"{credit_line(about['changed']) or 'with its defaults'}"
    )
    if about["masked"] is None:
        yield f"advantage    {_signed(about['advantage'])}"
    else:
        why = f": {about['why_masked']}" if about["why_masked"] else ""
        yield f"advantage    none, masked as {excerpt(about['masked'])!r}{why}"
    if len(about["rows"]) > 1:
        listed = ", ".join(map(_signed, about["rows"][:MEMBERS])) + (
            ", ..." if len(about["rows"]) > MEMBERS else ""
        )
        yield (
            f"rows         this is row {about['row']} of {len(about['rows'])} of the "
            f"step, one per leaf below it: {listed}"
        )
    if about["masked"] is None and not about["account"]:
        yield (
            f"parts        {credit_line(about['parts']) or '-'} (the method gives no "
            "account of its arithmetic)"
        )
    if told["written"] is not None:
        yield f"written      {_written(told['written'], _again(told, about))}"


def _again(told: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """What writes the method's credit anew."""
    return join(
        [
            "agentcli",
            "assign-credit",
            str(Path(told["trees"]).parent),
            "--method",
            about["method"],
            "--overwrite",
        ]
    )


def _written(written: Mapping[str, Any], again: str) -> str:
    if written["same"]:
        return f"the same in {written['file']}"
    differing = ", ".join(
        f"credit.{name} {there} there, {here} here"
        for name, (there, here) in written["settings"].items()
    )
    why = differing or f"not of these trees as they are; write it again with: {again}"
    return f"{_signed(written['advantage'])} in {written['file']}: {why}"


def _group(group: Mapping[str, Any], peers: Mapping[str, Any]) -> Iterator[str | Table]:
    spread = "" if group["std"] is None else f", std {group['std']:.10g}"
    yield f"  group {group['name']}: {excerpt(group['what'], 300)}"
    yield (
        f"    {len(group['members'])} entries, mean {group['mean']:.10g}{spread}, W "
        f"{group['weight']:.10g}"
    )
    table = Table(show_edge=False, pad_edge=False, box=None)
    steps = group["of"] == "step"
    for column in (
        "",
        group["of"],
        *(("action", "ends in") if steps else ()),
        "score",
        "weight",
    ):
        text = column in ("action", "ends in")
        table.add_column(
            column,
            justify="left" if text else "right",
            no_wrap=not text,
            overflow="fold",
        )
    chosen = _chosen(group["members"])
    for place in chosen:
        member = group["members"][place]
        cells = ["    >" if member["own"] else "     ", str(member["step"])]
        if steps:
            peer = peers[str(member["step"])]
            cells += [excerpt(peer["action"], 60), peer["outcome"] or "-"]
        table.add_row(
            *map(Text, [*cells, f"{member['score']:.10g}", f"{member['weight']:.10g}"])
        )
    yield table
    if len(chosen) < len(group["members"]):
        yield f"    ... and {len(group['members']) - len(chosen)} more"


def _chosen(members: Sequence[Mapping[str, Any]]) -> list[int]:
    """Which members are shown: the step's own first, then the others in their order."""
    own = [place for place, member in enumerate(members) if member["own"]][
        : MEMBERS // 2
    ]
    others = [place for place in range(len(members)) if place not in own][
        : MEMBERS - len(own)
    ]
    return sorted([*own, *others])


def _line(line: Mapping[str, Any], numbers: Mapping[str, float]) -> str:
    formula, value = line["formula"], f"{line['value']:.10g}"
    sides = [line["name"]]
    if formula is not None:
        sides += [
            formula,
            _NAME.sub(lambda name: _filled(numbers[name.group()]), formula),
        ]
    sides = [
        side for place, side in enumerate(sides) if side not in (value, *sides[:place])
    ]
    note = line["what"] + (f" [{line['source']}]" if line["source"] else "")
    return "  " + " = ".join([*sides, value]).ljust(68) + f"  {note}"


def _filled(value: float) -> str:
    return f"{value:.10g}" if value >= 0 else f"({value:.10g})"


def _signed(value: float | None) -> str:
    return "none" if value is None else f"{value:+.10g}"
