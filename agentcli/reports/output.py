"""Prints results: stdout is for data (a run's path, or JSON lines), stderr for tables."""

import json as jsonlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentcli.evaluation.record import EvaluationSummary, ResultsByKind
from agentcli.records.faults import printable
from agentcli.records.types import StageRecord
from agentcli.reports import tables
from agentcli.reports.blocks import Blocks

PIPE_WIDTH = 140
"""Width of a table, in columns, if the output is not a terminal."""
RECORD_FIELDS = (
    "seed",
    "panel",
    "panel_name",
    "counts",
    "ledger",
    "statistics",
    "seconds",
)
"""Fields of a stage's record that its JSON line has."""


def console(*, stderr: bool = False) -> Console:
    """stdout or stderr; where it is not a terminal, as wide as COLUMNS or the tables."""
    # Rich would draw an emoji for :name: in a path or in an action.
    terminal = Console(stderr=stderr, highlight=False, emoji=False)
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        terminal.width = PIPE_WIDTH
    return terminal


def print_result(
    stage: str,
    result: StageRecord | EvaluationSummary,
    out: Path,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Prints one finished stage: its path, or with `json` everything, and a table."""
    if json:
        print_json({"stage": stage, "out": str(out), **_plain(result)})
    else:
        print_path(out)
    if quiet:
        return
    if isinstance(result, StageRecord):
        _show_record(stage, result)
    else:
        _show_summary(result, out)


def print_path(path: Path | str) -> None:
    """Prints a path on stdout. Commands make none that a terminal would not show."""
    print(printable(str(path)))


def print_written(
    stage: str, out: Path | str, counts: Mapping[str, int], *, json: bool, quiet: bool
) -> None:
    """Prints where something was written, and its counts."""
    if json:
        print_json({"stage": stage, "out": str(out), "counts": counts})
    else:
        print_path(out)
    if not quiet:
        terminal = console(stderr=True)
        text = tables.folded_values("counts", counts, terminal.width)
        terminal.print(text, markup=False, soft_wrap=True)


def _plain(result: StageRecord | EvaluationSummary) -> dict[str, Any]:
    if isinstance(result, StageRecord):
        return {name: getattr(result, name) for name in RECORD_FIELDS}
    values = result.values()
    del values["stage"]
    return values


def _show_record(stage: str, record: StageRecord) -> None:
    terminal = console(stderr=True)
    statistics = dict(record.statistics)
    results = statistics.pop("results", None)
    lines = {
        "counts": record.counts,
        "statistics": statistics,
        "seconds": record.seconds,
    }
    # assign-credit has a table for its statistics.
    if stage == "assign-credit":
        credit = record.settings["credit"]
        terminal.print(tables.credit_table(credit["method"], lines.pop("statistics")))
        sentence = tables.equal_outcomes_line(statistics, credit)
        if sentence is not None:
            terminal.print(sentence, markup=False, soft_wrap=True)
    if results is not None:
        terminal.print(
            tables.results_table(stage, msgspec.convert(results, ResultsByKind))
        )
    for name, values in lines.items():
        if values:
            text = tables.folded_values(name, values, terminal.width)
            terminal.print(text, markup=False, soft_wrap=True)
    if record.ledger is not None:
        terminal.print(tables.ledger_table(record.ledger))


def _show_summary(summary: EvaluationSummary, out: Path) -> None:
    terminal = console(stderr=True)
    for line in tables.evaluation_lines(summary, out):
        terminal.print(line, markup=False, soft_wrap=True)
    terminal.print(tables.results_table(f"{summary.stage} {summary.label}", summary))
    if summary.pass_at_k is not None:
        terminal.print(tables.pass_at_k_table(summary))
        most = max(map(int, summary.pass_at_k), default=0)
        if most < summary.samples:
            terminal.print(
                f"k ends at {most} (--k): the nearer k is to the {summary.samples} "
                "samples of a task, the more its estimate hangs on single successes",
                soft_wrap=True,
            )


def print_rows(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    json: bool,
    styles: Sequence[str | None] | None = None,
) -> None:
    """Prints rows that were asked for: JSON lines, or a table, on stdout.

    `styles` has the look of each row on a terminal.
    """
    if json:
        for row in rows:
            print_json(row)
        return
    console().print(tables.rows_table(title, rows, styles))


def print_answer(
    answer: Any,
    parts_of: Callable[[Any], Iterable[str | Blocks | Table | Text]],
    *,
    json: bool,
) -> None:
    """Prints what was asked for: one JSON line, or tables and text, on stdout."""
    if json:
        print_json(answer)
        return
    out = console()
    for part in parts_of(answer):
        if isinstance(part, str):
            from agentcli.reports.explanation import folded

            # In a file a line stays whole, for whoever searches it.
            line = folded(part, out.width) if out.is_terminal else part
            out.print(line, markup=False, soft_wrap=True)
        else:
            out.print(part, soft_wrap=isinstance(part, Text))


def print_data(value: dict[str, Any], *, json: bool) -> None:
    """Prints a mapping that was asked for: one JSON line, or YAML, on stdout."""
    if json:
        print_json(value)
    else:
        print(to_yaml(value), end="")


ESTIMATES = {"seconds": "time", "memory_bytes": "memory at most"}
"""How a dry run calls what it estimates."""


def readable(estimate: Mapping[str, Any]) -> dict[str, str]:
    """The values of an estimate with the units that people use."""
    from rich.filesize import decimal

    texts = {}
    for name, value in estimate.items():
        # Nothing is to be changed, or nothing is in memory.
        if value in ("", {}):
            continue
        key = ESTIMATES.get(name) or name.removesuffix("_bytes")
        text = "not known" if value is None else str(value)
        if isinstance(value, int) and key == "time":
            text = str(timedelta(seconds=value))
        elif name == "devices":
            text = "one" if value == 1 else f"{value}, each with as much memory in use"
        elif isinstance(value, int):
            text = decimal(value)
        if isinstance(value, dict):
            key = "of it"
            text = ", ".join(f"{part} {decimal(held)}" for part, held in value.items())
        texts[key] = text
    return texts


def print_preview(
    command: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Path | str | None],
    outputs: Iterable[str],
    counts: Mapping[str, int],
    expected: msgspec.Struct | None = None,
    *,
    json: bool,
) -> None:
    """Prints what a command would read and write, and its estimated cost."""
    preview = {
        "command": command,
        "settings": settings,
        "inputs": {name: path and str(path) for name, path in inputs.items()},
        "outputs": list(outputs),
        "counts": counts,
    }
    if expected is not None:
        values = msgspec.to_builtins(expected)
        preview["expected"] = values if json else readable(values)
    print_data(preview, json=json)


def print_json(value: Any) -> None:
    """Prints plain values, or structs of them, as one JSON line on stdout."""
    # Not msgspec's encoder: readers of a pipe get ASCII in any locale.
    # At once: a program that reads the pipe may wait for this line (env serve).
    print(jsonlib.dumps(msgspec.to_builtins(value)), flush=True)


def to_yaml(value: Any) -> str:
    """Settings, or any mapping of plain values, as YAML in their own order."""
    import yaml

    text: str = yaml.safe_dump(
        msgspec.to_builtins(value), sort_keys=False, allow_unicode=True
    )
    return text
