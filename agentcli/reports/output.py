"""Who gets what: stdout is for data (a run's path, or JSON lines), stderr for tables."""

import json as jsonlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.types import StageRecord
from agentcli.reports.blocks import Blocks
from agentcli.reports.tables import (
    credit_line,
    credit_table,
    evaluation_table,
    ledger_table,
    pass_at_k_table,
    rows_table,
)

if TYPE_CHECKING:
    from agentcli.evaluation.compare import RunComparison

PIPE_WIDTH = 140
"""Columns of a table that no terminal shows."""
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


def console() -> Console:
    """stderr, wide enough for the tables when it is no terminal."""
    terminal = Console(stderr=True, highlight=False)
    return (
        terminal
        if terminal.is_terminal
        else Console(stderr=True, highlight=False, width=PIPE_WIDTH)
    )


def data_console() -> Console:
    """stdout, wide enough for the tables when it is no terminal."""
    terminal = Console(highlight=False, emoji=False)
    return (
        terminal
        if terminal.is_terminal
        else Console(highlight=False, emoji=False, width=PIPE_WIDTH)
    )


def print_result(
    stage: str,
    result: StageRecord | EvaluationSummary,
    out: Path,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """One finished stage: with `json` a line with everything on stdout, else the run's
    path there; a table on stderr.
    """
    if json:
        print_json({"stage": stage, "out": str(out), **_plain(result)})
    else:
        print(out)
    if quiet:
        return
    if isinstance(result, StageRecord):
        _show_record(stage, result)
        return
    console().print(evaluation_table(result))
    if result.pass_at_k is not None:
        console().print(pass_at_k_table(result))


def print_rows(title: str, rows: list[dict[str, Any]], *, json: bool) -> None:
    """Rows that were asked for: JSON lines, or a table, on stdout."""
    if json:
        for row in rows:
            print_json(row)
        return
    data_console().print(rows_table(title, rows))


def print_explanation(explained: dict[str, Any], *, json: bool) -> None:
    """An explained step (analysis.explain, as plain values): one JSON line, or text, on
    stdout.
    """
    if json:
        print_json(explained)
        return
    from agentcli.reports.explanation import explanation

    out = data_console()
    for part in explanation(explained):
        out.print(part, markup=False, soft_wrap=isinstance(part, str))


def print_agreement(agreement: dict[str, Any], *, json: bool) -> None:
    """Credit methods side by side (analysis.compare_credit): one JSON line, or tables,
    on stdout.
    """
    if json:
        print_json(agreement)
        return
    from agentcli.reports.agreement import tables

    _print_tables(tables(agreement))


def print_comparison(comparison: "RunComparison", *, json: bool) -> None:
    """A comparison that was asked for: one JSON line, or its tables, on stdout."""
    if json:
        print_json(comparison)
        return
    from agentcli.reports.comparison import comparison_tables

    _print_tables(comparison_tables(comparison))


def print_data(value: dict[str, Any], *, json: bool) -> None:
    """A mapping that was asked for: one JSON line, or YAML, on stdout."""
    if json:
        print_json(value)
    else:
        print(to_yaml(value), end="")


def print_json(value: Any) -> None:
    """Plain values, or structs of them, as one JSON line on stdout."""
    print(jsonlib.dumps(msgspec.to_builtins(value)))


def to_yaml(value: Any) -> str:
    """Settings, or any mapping of plain values, as YAML in their own order."""
    import yaml

    text: str = yaml.safe_dump(
        msgspec.to_builtins(value), sort_keys=False, allow_unicode=True
    )
    return text


def _print_tables(tables: Iterable[Blocks]) -> None:
    out = data_console()
    for table in tables:
        out.print(table)


def _plain(result: StageRecord | EvaluationSummary) -> dict[str, Any]:
    if isinstance(result, StageRecord):
        return {name: getattr(result, name) for name in RECORD_FIELDS}
    values = result.values()
    del values["stage"]
    return values


def _show_record(stage: str, record: StageRecord) -> None:
    terminal = console()
    shown = {
        "counts": record.counts,
        "statistics": record.statistics,
        "seconds": record.seconds,
    }
    # assign-credit has a table for its statistics.
    if stage == "assign-credit":
        terminal.print(
            credit_table(record.settings["credit"]["method"], shown.pop("statistics"))
        )
    for name, values in shown.items():
        if values:
            terminal.print(
                f"{name}: {credit_line(values)}", markup=False, soft_wrap=True
            )
    if record.ledger is not None:
        terminal.print(ledger_table({"total": record.ledger}))
