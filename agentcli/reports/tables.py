"""Tables of results for the terminal, made from plain numbers: summaries of evaluations, ledgers, statistics of credit.

Functions return tables or text and print nothing; output.py prints them.
"""

from collections.abc import Mapping
from typing import Any

from agentcli.reports.blocks import Blocks

Summary = Mapping[str, Any]
"""An evaluation/<label>.json: episodes, success {rate, low, high}, steps, ratios, kinds {kind: the same}."""

RATIOS = ("repetitive", "explore", "malformed", "inadmissible")


def percent(value: float, places: int = 1) -> str:
    """0.125 -> "12.5"."""
    return f"{100 * value:.{places}f}"


def rate(success: Mapping[str, Any]) -> str:
    """A success rate with its 95 % interval, in percent: "67.5 (58.7-75.2)"."""
    return f"{percent(success['rate'])} ({percent(success['low'])}-{percent(success['high'])})"


def evaluation_table(summary: Summary) -> Blocks:
    """One row per task kind and one for all: success with interval, steps, tokens, ratios (of evaluation.summary) in percent."""
    heads = ("episodes", "success % (95 %)", "steps", "tokens", *(f"{name} %" for name in RATIOS))
    table = Blocks(
        f"{summary.get('stage', 'eval')} {summary.get('label') or summary.get('split', '')}", ("kind",), heads
    )
    for kind, row in {**summary["kinds"], "all": summary}.items():
        ratios = [percent(row[name]) for name in RATIOS]
        cells = [str(row["episodes"]), rate(row["success"]), f"{row['steps']:.1f}", f"{row['tokens']:.0f}", *ratios]
        table.add((kind,), cells, style="bold" if kind == "all" else None)
    return table


def pass_at_k_table(summary: Summary) -> Blocks:
    """pass@k by k, with intervals over tasks."""
    table = Blocks(f"pass@k {summary['split']}, {summary['samples']} samples a task", ("k",), ("pass@k % (95 %)",))
    for attempts, value in summary["pass_at_k"].items():
        table.add((attempts,), (rate(value),))
    return table


def comparison_table(pairs: Mapping[str, tuple[Summary, Summary]], p_values: Mapping[str, float]) -> Blocks:
    """Success before and after, by task kind.

    pairs: name of the way of sampling (sampled, greedy) -> (before, after). p_values: the same names -> p-value of the
    paired test over tasks, shown in the row of all kinds. Gains are in percentage points.
    """
    heads: list[str] = []
    for name in pairs:
        heads += [f"{name}: before", "after", "gain", *(["McNemar p"] if name in p_values else [])]
    table = Blocks("success % (95 %)", ("kind",), heads)
    kinds = sorted({kind for pair in pairs.values() for summary in pair for kind in summary["kinds"]})
    for kind in [*kinds, None]:
        cells: list[str] = []
        for name, (before, after) in pairs.items():
            cells += _compared(before, after, kind)
            if name in p_values:
                cells.append(f"{p_values[name]:.2g}" if kind is None else "")
        table.add((kind or "all",), cells, style="bold" if kind is None else None)
    return table


def _compared(before: Summary, after: Summary, kind: str | None) -> list[str]:
    found = [summary if kind is None else summary["kinds"].get(kind) for summary in (before, after)]
    shown = [rate(row["success"]) if row else "-" for row in found]
    gain = percent(found[1]["success"]["rate"] - found[0]["success"]["rate"]) if found[0] and found[1] else "-"
    return [*shown, gain if gain.startswith("-") else f"+{gain}"]


def ledger_table(ledgers: Mapping[str, Mapping[str, int]], reference: str | None = None) -> Blocks:
    """What rollouts cost, one column each; with `reference`, also every other one's share of it."""
    others = [name for name in ledgers if reference is not None and name != reference]
    table = Blocks("ledger", ("count",), (*ledgers, *(f"{name} / {reference}" for name in others)))
    for field in next(iter(ledgers.values()), {}):
        cells = [f"{ledger[field]:,}" for ledger in ledgers.values()]
        for name in others:
            base = ledgers[reference][field] if reference is not None else 0
            cells.append(f"{ledgers[name][field] / base:.2f}" if base else "-")
        table.add((field.replace("_", " "),), cells)
    return table


def credit_table(method: str, statistics: Mapping[str, Any]) -> Blocks:
    """What assign-credit says of a file: advantages over assigned rows, shares in percent, and the sizes of the state graphs
    (002 Table 9) where there are any."""
    table = Blocks(f"credit {method}", ("of the file",), ("",))
    trees = statistics["trees"]
    shown = {
        "trees": f"{trees:,}",
        "without a success": _of(statistics["groups_without_success"], trees),
        "with equal outcomes": _of(statistics["groups_all_equal"], trees),
        "rows": f"{statistics['rows']:,}",
        "masked %": _percent_or_none(statistics["share_masked"]),
        "zero advantage %": _percent_or_none(statistics["share_zero"]),
        "mean advantage": _short(statistics["mean"]),
        "spread (std)": _short(statistics["spread"]),
        "drift (|mean| / std)": _short(statistics["drift"]),
    }
    for name, share in statistics["nonzero"].items():
        shown[f"{name} not zero %"] = percent(share)
    if "graphs" in statistics:
        sizes = statistics["graphs"]
        for name in ("nodes", "edges"):
            shown[f"graph {name}: mean, most"] = f"{sizes[name]:.1f}, {sizes[f'most_{name}']}"
    for name, value in shown.items():
        table.add((name,), (value,))
    return table


def _of(count: int, all_: int) -> str:
    """ "3 (25.0 %)"."""
    return f"{count:,} ({percent(count / all_)} %)" if all_ else "0"


def _percent_or_none(share: float | None) -> str:
    return "-" if share is None else percent(share)


def credit_line(statistics: Mapping[str, Any]) -> str:
    """Statistics of assign-credit, or of training, on one line; nested ones by their dotted name."""
    return ", ".join(f"{name} {_short(value)}" for name, value in flatten(statistics).items())


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found.update(flatten(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value})
    return found


def rows_table(title: str, rows: list[dict[str, Any]]) -> Blocks:
    """Plain rows with the same keys."""
    table = Blocks(title, list(rows[0]) if rows else [])
    for row in rows:
        table.add([credit_line(value) if isinstance(value, Mapping) else _short(value) for value in row.values()])
    return table


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(_short(item) for item in value)
    return str(value)
