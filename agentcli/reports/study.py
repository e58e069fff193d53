"""The results of a study, as tables for terminal and Markdown."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcli.records.files import write_atomic
from agentcli.records.study import PaperResult, SeedDifference, StudyResults
from agentcli.reports.blocks import Blocks
from agentcli.reports.output import console, print_json

HEADS = ("arm", "seeds", "mean %", "gain (95 %)", "p")
WIDTH = 78


def print_study(found: StudyResults, out: Path, *, json: bool, quiet: bool) -> None:
    """Prints the results and writes OUT/study.md."""
    write_atomic(out / "study.md", markdown(found).encode())
    if json:
        print_json(found)
        return
    if quiet:
        print(out / "study.json")
        return
    terminal = console()
    for measure, rows in tables(found):
        table = Blocks(measure, HEADS[:1], HEADS[1:])
        for row in rows:
            table.add(row)
        terminal.print(table)
    for line in remarks(found):
        terminal.print(line, markup=False, soft_wrap=True)


def markdown(found: StudyResults) -> str:
    """The tables and remarks as Markdown."""
    lines = [f"# {found.study['title']}", ""]
    for measure, rows in tables(found):
        lines += [f"**{measure}**", "", _line(HEADS), _line(["---"] * len(HEADS))]
        lines += [*map(_line, rows), ""]
    lines += [f"- {line}" for line in remarks(found)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def tables(found: StudyResults) -> Iterator[tuple[str, list[list[str]]]]:
    """Every measure with its rows: the reference first, then each arm beside it."""
    measures = dict.fromkeys(one.measure for one in found.differences)
    reference = found.study["reference"]
    for measure in measures:
        differences = [one for one in found.differences if one.measure == measure]
        # An arm may have seeds that another lacks; the widest one speaks here.
        widest = max(differences, key=lambda one: len(one.seeds))
        first = [
            reference,
            str(len(widest.seeds)),
            f"{widest.reference_mean:.1f}",
            "",
            "",
        ]
        yield measure, [first, *map(_row, differences)]


def _row(one: SeedDifference) -> list[str]:
    interval = ""
    if one.low is not None and one.high is not None:
        interval = f" ({one.low:+.1f} to {one.high:+.1f})"
    return [
        one.arm,
        str(len(one.seeds)),
        f"{one.mean:.1f}",
        f"{one.gain:+.1f}{interval}",
        f"{one.p:.3f}",
    ]


def remarks(found: StudyResults) -> Iterator[str]:
    """The paper's figure beside ours, and what the arms did not spend alike."""
    if found.study.get("result") and found.verdict:
        result = PaperResult(**found.study["result"])
        yield (
            f"{result.paper}, {result.table}: {result.arm} {result.gain:+.1f} over "
            f"{found.study['reference']}: {found.verdict}"
        )
    for line in found.unlike:
        yield f"not spent alike: {line}"
    yield (
        "gain: mean over seeds with the interval of paired t; p: exact signed-rank "
        "test over seeds"
    )
