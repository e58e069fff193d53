"""Tables of results for the terminal: summaries of evaluations, ledgers, statistics of
credit.

Functions return tables or text and print nothing; output.py prints them.
"""

from collections.abc import Mapping
from typing import Any

from agentcli.evaluation.record import EvaluationSummary, Rate, Results, ResultsByKind
from agentcli.records.types import Ledger
from agentcli.reports.blocks import Blocks

RATIOS = ("repetitive", "explore", "malformed", "inadmissible")
"""Fields of Results that are shares."""


def percent(value: float, places: int = 1) -> str:
    """A share in percent: 0.125 -> "12.5"."""
    return f"{100 * value:.{places}f}"


def percent_or_none(share: float | None) -> str:
    """A share in percent, "-" where there is nothing to be a share of."""
    return "-" if share is None else percent(share)


def rate(success: Rate) -> str:
    """A success rate with its 95 % interval, in percent: "67.5 (58.7-75.2)"."""
    return f"{percent(success.rate)} ({percent(success.low)}-{percent(success.high)})"


def evaluation_table(summary: EvaluationSummary) -> Blocks:
    """One row per task kind and one for all: success with interval, steps, tokens,
    shares in percent.
    """
    heads = (
        "episodes",
        "success % (95 %)",
        "steps",
        "tokens",
        *(f"{name} %" for name in RATIOS),
    )
    table = Blocks(f"{summary.stage} {summary.label}", ("kind",), heads)
    for kind, results in summary.kinds.items():
        table.add((kind,), _results_cells(results))
    table.add(("all",), _results_cells(summary), style="bold")
    return table


def pass_at_k_table(summary: EvaluationSummary) -> Blocks:
    """pass@k by k, with intervals over tasks."""
    title = f"pass@k {summary.split}, {summary.samples} samples a task"
    table = Blocks(title, ("k",), ("pass@k % (95 %)",))
    for attempts, chance in (summary.pass_at_k or {}).items():
        table.add((attempts,), (rate(chance),))
    return table


def comparison_table(
    pairs: Mapping[str, tuple[ResultsByKind, ResultsByKind]],
    p_values: Mapping[str, float],
) -> Blocks:
    """Success before and after, by task kind.

    pairs: name of the way of sampling (sampled, greedy) -> (before, after). p_values:
    the same names -> p-value of the paired test over tasks, shown in the row of all
    kinds. Gains are in percentage points.
    """
    heads: list[str] = []
    for name in pairs:
        heads += [f"{name}: before", "after", "gain"]
        if name in p_values:
            heads.append("McNemar p")
    table = Blocks("success % (95 %)", ("kind",), heads)
    for kind in sorted(
        {kind for pair in pairs.values() for summary in pair for kind in summary.kinds}
    ):
        cells: list[str] = []
        for name, (before, after) in pairs.items():
            cells += _gain_cells(before.kinds.get(kind), after.kinds.get(kind))
            if name in p_values:
                cells.append("")
        table.add((kind,), cells)
    cells = []
    for name, (before, after) in pairs.items():
        cells += _gain_cells(before, after)
        if name in p_values:
            cells.append(f"{p_values[name]:.2g}")
    table.add(("all",), cells, style="bold")
    return table


def ledger_table(ledgers: Mapping[str, Ledger], reference: str | None = None) -> Blocks:
    """What rollouts cost, one column each; with `reference`, also every other one's
    share of it.
    """
    others = [name for name in ledgers if reference is not None and name != reference]
    table = Blocks(
        "ledger", ("count",), (*ledgers, *(f"{name} / {reference}" for name in others))
    )
    for field in Ledger.__struct_fields__:
        counts: dict[str, int] = {
            name: getattr(ledger, field) for name, ledger in ledgers.items()
        }
        cells = [f"{count:,}" for count in counts.values()]
        for name in others:
            base = 0 if reference is None else counts[reference]
            cells.append(f"{counts[name] / base:.2f}" if base else "-")
        table.add((field.replace("_", " "),), cells)
    return table


def credit_table(method: str, statistics: Mapping[str, Any]) -> Blocks:
    """The statistics of assign-credit: advantages over assigned rows, shares in
    percent, sizes of state graphs (002 Table 9).
    """
    trees = statistics["trees"]
    cells = {
        "trees": f"{trees:,}",
        "without a success": _count_and_share(
            statistics["groups_without_success"], trees
        ),
        "with equal outcomes": _count_and_share(statistics["groups_all_equal"], trees),
        "rows": f"{statistics['rows']:,}",
        "masked %": percent_or_none(statistics["share_masked"]),
        "zero advantage %": percent_or_none(statistics["share_zero"]),
        "mean advantage": _short(statistics["mean"]),
        "spread (std)": _short(statistics["spread"]),
        "drift (|mean| / std)": _short(statistics["drift"]),
    }
    for name, share in statistics["nonzero"].items():
        cells[f"{name} not zero %"] = percent(share)
    # Only methods with a state graph have its sizes.
    if "graphs" in statistics:
        sizes = statistics["graphs"]
        for name in ("nodes", "edges"):
            cells[f"graph {name}: mean, most"] = (
                f"{sizes[name]:.1f}, {sizes[f'most_{name}']}"
            )
    table = Blocks(f"credit {method}", ("of the file",), ("",))
    for name, cell in cells.items():
        table.add((name,), (cell,))
    return table


def credit_line(statistics: Mapping[str, Any]) -> str:
    """Statistics of assign-credit, or of training, on one line; nested ones by their
    dotted name.
    """
    return ", ".join(
        f"{name} {_short(value)}" for name, value in flatten(statistics).items()
    )


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values by dotted name: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{above}{name}."))
        else:
            flat[f"{above}{name}"] = value
    return flat


def rows_table(title: str, rows: list[dict[str, Any]]) -> Blocks:
    """Plain rows with the same keys."""
    table = Blocks(title, list(rows[0]) if rows else [])
    for row in rows:
        table.add(
            [
                credit_line(value) if isinstance(value, Mapping) else _short(value)
                for value in row.values()
            ]
        )
    return table


def _results_cells(results: Results) -> list[str]:
    ratios = [percent(getattr(results, name)) for name in RATIOS]
    return [
        str(results.episodes),
        rate(results.success),
        f"{results.steps:.1f}",
        f"{results.tokens:.0f}",
        *ratios,
    ]


def _gain_cells(before: Results | None, after: Results | None) -> list[str]:
    """Before, after and gain; "-" for what is not there."""
    shown = [rate(results.success) if results else "-" for results in (before, after)]
    if before is None or after is None:
        return [*shown, "-"]
    return [*shown, f"{100 * (after.success.rate - before.success.rate):+.1f}"]


def _count_and_share(count: int, whole: int) -> str:
    """A count with its share of the whole: "3 (25.0 %)"."""
    return f"{count:,} ({percent(count / whole)} %)" if whole else "0"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(_short(item) for item in value)
    return str(value)
