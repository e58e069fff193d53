"""Who gets what: stdout is for data (a run's path, or JSON lines), stderr for tables."""

import json as jsonlib
from pathlib import Path
from typing import Any

from rich.console import Console

from agentcli.records.types import StageRecord
from agentcli.reports.tables import (
    credit_line,
    credit_table,
    evaluation_table,
    ledger_table,
    pass_at_k_table,
    rows_table,
)

PIPE_WIDTH = 140
"""Columns of a table that no terminal shows."""


def console() -> Console:
    """stderr, wide enough for the tables when it is no terminal."""
    found = Console(stderr=True, highlight=False)
    return found if found.is_terminal else Console(stderr=True, highlight=False, width=PIPE_WIDTH)


def print_result(stage: str, result: StageRecord | dict[str, Any], out: Path, *, json: bool, quiet: bool) -> None:
    """One finished stage: with `json` a line with everything on stdout, else the run's path there; a table on stderr."""
    if json:
        print(jsonlib.dumps({"stage": stage, "out": str(out), **_plain(result)}))
    else:
        print(out)
    if quiet:
        return
    if isinstance(result, StageRecord):
        _show_record(stage, result)
        return
    console().print(evaluation_table(result))
    if "pass_at_k" in result:
        console().print(pass_at_k_table(result))


def print_rows(title: str, rows: list[dict[str, Any]], *, json: bool) -> None:
    """Rows that were asked for: JSON lines, or a table, on stdout."""
    if json:
        for row in rows:
            print(jsonlib.dumps(row))
        return
    data_console().print(rows_table(title, rows))


def print_explanation(told: dict[str, Any], *, json: bool) -> None:
    """An explained step (analysis.explain, as plain values): one JSON line, or text, on stdout."""
    if json:
        print(jsonlib.dumps(told))
        return
    from agentcli.reports.explanation import explanation

    out = data_console()
    for part in explanation(told):
        out.print(part, markup=False, soft_wrap=isinstance(part, str))


def print_agreement(found: dict[str, Any], *, json: bool) -> None:
    """Credit methods side by side (analysis.compare_credit): one JSON line, or tables, on stdout."""
    if json:
        print(jsonlib.dumps(found))
        return
    from agentcli.reports.agreement import tables

    out = data_console()
    for table in tables(found):
        out.print(table)


def data_console() -> Console:
    """stdout, wide enough for the tables when it is no terminal."""
    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, width=PIPE_WIDTH)


def print_comparison(result: dict[str, Any], *, json: bool) -> None:
    """A comparison that was asked for: one JSON line, or its tables, on stdout."""
    if json:
        print(jsonlib.dumps(result))
        return
    from agentcli.reports.comparison import comparison_tables

    out = data_console()
    for table in comparison_tables(result):
        out.print(table)


def print_data(value: dict[str, Any], *, json: bool) -> None:
    """A mapping that was asked for: one JSON line, or YAML, on stdout."""
    if json:
        print(jsonlib.dumps(value))
        return
    print(to_yaml(value), end="")


def to_yaml(value: Any) -> str:
    """Settings, or any mapping of plain values, as YAML in their own order."""
    import msgspec
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True)
    return text


def _plain(result: StageRecord | dict[str, Any]) -> dict[str, Any]:
    if not isinstance(result, StageRecord):
        return {name: value for name, value in result.items() if name != "stage"}
    import msgspec

    shown = ("seed", "panel", "panel_name", "counts", "ledger", "statistics", "seconds")
    values = msgspec.to_builtins(result)
    return {name: values[name] for name in shown}


def _show_record(stage: str, record: StageRecord) -> None:
    import msgspec

    terminal = console()
    if stage == "assign-credit":
        terminal.print(credit_table(record.settings["credit"]["method"], record.statistics))
    for name in ("counts", "seconds") if stage == "assign-credit" else ("counts", "statistics", "seconds"):
        values = getattr(record, name)
        if values:
            terminal.print(f"{name}: {credit_line(values)}", markup=False, soft_wrap=True)
    if record.ledger is not None:
        terminal.print(ledger_table({"total": msgspec.to_builtins(record.ledger)}))
