"""Tables of how far credit methods agree, made from plain values
(analysis.compare_credit). Texts of worlds are escaped.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agentcli.reports.blocks import Blocks
from agentcli.reports.explanation import excerpt
from agentcli.reports.tables import credit_line, percent

COLUMNS = 6
"""Methods that have a column each among the steps where they differ."""
NOISE = 1e-12
"""Means and correlations below it are shown as 0."""


def tables(found: Mapping[str, Any]) -> Iterator[Blocks]:
    """Where the numbers come from, agreement pair by pair and kind by kind (if there
    are several), and the steps where the methods differ most.
    """
    sampled = (
        f", figures from a sample of {found['kept']:,}"
        if found["kept"] < found["steps"]
        else ""
    )
    yield _methods(found, f"credit of {found['steps']:,} steps{sampled}")
    yield _agreement(found)
    if found["disagreements"]:
        yield _disagreements(found)


def _methods(found: Mapping[str, Any], title: str) -> Blocks:
    table = Blocks(
        title,
        ("method", "from", "switches"),
        ("steps", "masked %", "zero %", "mean", "spread"),
    )
    for row in found["methods"]:
        source = row["file"] or "computed now"
        table.add(
            (row["method"], source, credit_line(row["settings"]) or "defaults"),
            (
                f"{row['steps']:,}",
                _percent(row["share_masked"]),
                _percent(row["share_zero"]),
                _number(row["mean"]),
                _number(row["spread"]),
            ),
        )
    return table


def _agreement(found: Mapping[str, Any]) -> Blocks:
    numbers = ("steps", "pearson", "spearman", "opposite sign %", "zero in one %")
    table = Blocks(
        "agreement over the steps to which both give an advantage",
        ("methods", "kind"),
        numbers,
    )
    kinds = {row["kind"] for row in found["agreement"]}
    for row in found["agreement"]:
        if len(kinds) == 2 and row["kind"] is not None:
            continue
        table.add(
            (
                " ~ ".join(row["methods"]),
                "all" if row["kind"] is None else excerpt(row["kind"], 40),
            ),
            (
                f"{row['steps']:,}",
                _number(row["pearson"], "+.3f"),
                _number(row["spearman"], "+.3f"),
                _percent(row["share_opposite"]),
                _percent(row["share_zero_in_one"]),
            ),
            style="bold" if row["kind"] is None else None,
        )
    return table


def _disagreements(found: Mapping[str, Any]) -> Blocks:
    names = [row["method"] for row in found["methods"]]
    title = (
        "where they differ most, each advantage measured by its method's root mean "
        "square; look closer with --explain LINE:STEP"
    )
    few = len(names) <= COLUMNS
    texts = ("task", "action") if few else ("task", "action", "advantages")
    table = Blocks(title, texts, (*(names if few else ()), "apart", "line:step"))
    for row in found["disagreements"]:
        given = [_number(row["advantages"][name], "+.4g") for name in names]
        listed = ", ".join(
            f"{name} {value}" for name, value in zip(names, given, strict=True)
        )
        table.add(
            (
                excerpt(row["task"], 40),
                excerpt(row["action"], 40),
                *(() if few else (listed,)),
            ),
            (
                *(given if few else ()),
                _number(row["distance"]),
                f"{row['line']}:{row['step']}",
            ),
        )
    return table


def _number(value: float | None, form: str = ".4g") -> str:
    return "-" if value is None else format(0.0 if abs(value) < NOISE else value, form)


def _percent(share: float | None) -> str:
    return "-" if share is None else percent(share)
