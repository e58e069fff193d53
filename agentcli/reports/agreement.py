"""Tables of how far credit methods agree. Texts of worlds are escaped."""

from collections.abc import Iterator

from agentcli.credit.compare import CreditComparison
from agentcli.reports.blocks import Blocks
from agentcli.reports.explanation import excerpt
from agentcli.reports.tables import percent, values_line

COLUMNS = 6
"""Methods that have a column each among the steps where they differ."""
TEXT = 40
"""Characters of a text in a cell."""
NOISE = 1e-12
"""Means and correlations below it are shown as 0."""


def agreement_tables(comparison: CreditComparison) -> Iterator[Blocks]:
    """The methods, how far they agree, and the steps where they differ most."""
    yield _methods(comparison)
    yield _agreement(comparison)
    if comparison.disagreements:
        yield _disagreements(comparison)


def _methods(comparison: CreditComparison) -> Blocks:
    title = f"credit of {comparison.steps:,} steps"
    if comparison.kept < comparison.steps:
        title += f", figures from a sample of {comparison.kept:,}"
    table = Blocks(
        title,
        ["method", "from", "switches"],
        ["steps", "masked %", "zero %", "mean", "spread"],
    )
    for row in comparison.methods:
        cells = [
            row.method,
            row.file or "computed now",
            values_line(row.settings) or "defaults",
            f"{row.steps:,}",
            percent(row.share_masked),
            percent(row.share_zero),
            _number(row.mean),
            _number(row.spread),
        ]
        table.add(cells)
    return table


def _agreement(comparison: CreditComparison) -> Blocks:
    table = Blocks(
        "agreement over the steps to which both give an advantage",
        ["methods", "kind"],
        ["steps", "pearson", "spearman", "opposite sign %", "zero in one %"],
    )
    kinds = {row.kind for row in comparison.agreement}
    for row in comparison.agreement:
        kind = row.kind
        # The row of a single kind would repeat the row of all, whose kind is None.
        if len(kinds) == 2 and kind is not None:
            continue
        cells = [
            " ~ ".join(row.methods),
            "all" if kind is None else excerpt(kind, TEXT),
            f"{row.steps:,}",
            _number(row.pearson, "+.3f"),
            _number(row.spearman, "+.3f"),
            percent(row.share_opposite),
            percent(row.share_zero_in_one),
        ]
        table.add(cells, style="bold" if kind is None else None)
    return table


def _disagreements(comparison: CreditComparison) -> Blocks:
    title = (
        "where they differ most, each advantage measured by its method's root mean "
        "square; look closer with --explain LINE:STEP"
    )
    methods = [row.method for row in comparison.methods]
    texts = ["task", "action"]
    numbers = ["apart", "line:step"]
    # Many columns would make many blocks: the advantages then share one text.
    in_columns = len(methods) <= COLUMNS
    if in_columns:
        numbers = [*methods, *numbers]
    else:
        texts = [*texts, "advantages"]
    table = Blocks(title, texts, numbers)
    for row in comparison.disagreements:
        advantages = [_number(row.advantages[method]) for method in methods]
        if not in_columns:
            pairs = zip(methods, advantages, strict=True)
            advantages = [", ".join(f"{method} {value}" for method, value in pairs)]
        cells = [
            # Folded, since the middle tells tasks apart.
            row.task,
            excerpt(row.action, TEXT),
            *advantages,
            _number(row.distance),
            f"{row.line}:{row.step}",
        ]
        table.add(cells)
    return table


def _number(value: float | None, form: str = ".4g") -> str:
    if value is None:
        return "-"
    return format(0.0 if abs(value) < NOISE else value, form)
