"""Tables of results for the terminal: evaluations, ledgers, statistics of credit.

Functions return tables or text and print nothing; output.py prints them.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from pathlib import Path
from textwrap import fill
from typing import Any

from agentcli.evaluation.record import EvaluationSummary, Rate, Results, ResultsByKind
from agentcli.records.faults import printable
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Ledger
from agentcli.reports.blocks import Blocks

SUCCESS = "success % (95 %)"
SCORE = "score"
RATIOS = {
    "repetitive": "repeated",
    "explore": "explore",
    "malformed": "malformed",
    "inadmissible": "inadmissible",
}
"""Fields of Results that are shares, and the word for each."""
COLOURS = {0.0: "red", 1.0: "green"}
"""Where none or all succeed."""


def percent(share: float | None) -> str:
    """A share in percent: 0.125 -> "12.5"; "-" where there is nothing to share."""
    if share is None:
        return "-"
    return f"{100 * share:.1f}"


def rate(success: Rate) -> str:
    """A success rate with its 95 % interval, in percent: "67.5 (58.7-75.2)"."""
    interval = f"{percent(success.low)}-{percent(success.high)}"
    return f"{percent(success.rate)} ({interval})"


def fork_bands(shares: Sequence[float]) -> dict[str, float]:
    """The share of forks after step 1, 2, 3-4, 5-8, ..., from that at each depth."""
    bands = {}
    first = last = 1
    while first <= len(shares):
        name = str(first)
        if first < last:
            name += f"-{last}"
        # The last band may reach beyond the deepest fork: a slice then ends early.
        bands[name] = sum(shares[first - 1 : last])
        first, last = last + 1, 2 * last
    return bands


def evaluation_lines(summary: EvaluationSummary, out: Path) -> list[str]:
    """Says what was evaluated and on what, and how to look at the failures."""
    directory = RunDirectory(out)
    file = directory.evaluation(summary.label).with_suffix(".json")
    panel = summary.panel
    asked = summary.model or summary.policy
    samples = "1 sample" if summary.samples == 1 else f"{summary.samples} samples"
    lines = [
        f"{printable(str(file))}: {printable(asked)}, "
        f"temperature {summary.temperature:g}, "
        f"{panel.name} of {panel.tasks} tasks, {samples} each"
    ]
    trees = directory.evaluation_trees(summary.label)
    if summary.success.rate < 1 and trees.exists():
        words = ["show", str(out), "--evaluation", summary.label, "--failed"]
        lines.append(f"failures: agentcli {printable(shlex.join(words))}")
    return lines


def results_table(title: str, whole: ResultsByKind) -> Blocks:
    """Results: a row per task kind and one for all, shares in percent.

    The score, a mean of rewards, has a column where it is more than the success rate.
    """
    ratios = [f"{word} %" for word in RATIOS.values()]
    heads = ["episodes", SUCCESS, SCORE, "steps", "tokens", *ratios]
    table = Blocks(title, ["kind"], heads)
    for kind, results in whole.kinds.items():
        cells = [kind, *_results_cells(results)]
        colour = COLOURS.get(results.success.rate, "")
        table.add(cells, colours={SUCCESS: colour})
    table.add(["all", *_results_cells(whole)], style="bold")
    every = [whole, *whole.kinds.values()]
    if not any(map(is_graded, every)):
        table.leave_out(SCORE)
    return table


def is_graded(results: Results) -> bool:
    """Whether rewards say more than success does."""
    # The two means are added up apart, and may round differently.
    return not isclose(results.score, results.success.rate, abs_tol=1e-9)


def _results_cells(results: Results) -> list[str]:
    return [
        str(results.episodes),
        rate(results.success),
        f"{results.score:.3f}",
        f"{results.steps:.1f}",
        f"{results.tokens:.0f}",
        *(percent(getattr(results, name)) for name in RATIOS),
    ]


def pass_at_k_table(summary: EvaluationSummary) -> Blocks:
    """pass@k by k, with intervals over tasks."""
    title = f"pass@k {summary.split}, {summary.samples} samples a task"
    table = Blocks(title, ["k"], ["pass@k % (95 %)"])
    for attempts, chance in (summary.pass_at_k or {}).items():
        table.add([attempts, rate(chance)])
    return table


def ledger_table(ledger: Ledger) -> Blocks:
    """The cost of a rollout, one count a row."""
    table = Blocks("ledger", ["count"], ["total"])
    for name in Ledger.__struct_fields__:
        count = getattr(ledger, name)
        table.add([name.replace("_", " "), f"{count:,}"])
    return table


def credit_table(method: str, statistics: Mapping[str, Any]) -> Blocks:
    """The statistics of assign-credit.

    Advantages are those of assigned rows, shares are in percent. State graphs are
    measured as in RewardFlow Table 9.
    """
    trees = statistics["trees"]
    failed = statistics["groups_without_success"]
    equal = statistics["groups_all_equal"]
    cells = {
        "trees": f"{trees:,}",
        "without a success": _count_and_share(failed, trees),
        "with equal outcomes": _count_and_share(equal, trees),
        "rows": f"{statistics['rows']:,}",
        "masked %": percent(statistics["share_masked"]),
        "zero advantage %": percent(statistics["share_zero"]),
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
            most = sizes[f"most_{name}"]
            cells[f"graph {name}: mean, most"] = f"{sizes[name]:.1f}, {most}"
    table = Blocks(f"credit {method}", ["of the file"], [""])
    for name, cell in cells.items():
        table.add([name, cell])
    return table


def equal_outcomes_line(
    statistics: Mapping[str, Any], credit: Mapping[str, Any]
) -> str | None:
    """Says that groups with equal outcomes have advantages; None where they have none.

    `credit` are the settings of the method.
    """
    counts = statistics["equal_outcomes"]
    moved = counts["rows_not_zero"]
    if moved == 0:
        return None
    remedy = ""
    if credit.get("penalty") == "inside" and credit.get("invalid_penalty"):
        remedy = (
            "; --set credit.penalty=outside charges an invalid action to its own step "
            "alone"
        )
    return (
        f"{moved:,} of {counts['rows']:,} rows of groups with equal outcomes have an "
        f"advantage all the same, {percent(counts['share_of_mass'])} % of the sum of "
        "|advantage|: the method credits more than outcomes, for instance invalid "
        "actions (credit.invalid_penalty) or the states on the way; --explain best "
        f"accounts for one{remedy}"
    )


def _count_and_share(count: int, whole: int) -> str:
    """A count with its share of the whole: "3 (25.0 %)"."""
    if whole == 0:
        return "0"
    return f"{count:,} ({percent(count / whole)} %)"


def rows_table(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    styles: Sequence[str | None] | None = None,
) -> Blocks:
    """Plain rows with the same keys; `styles` has one for each row."""
    if not rows:
        return Blocks(title, [])
    table = Blocks(title, list(rows[0]))
    styles = styles or [None] * len(rows)
    for row, style in zip(rows, styles, strict=True):
        table.add(map(_short, row.values()), style)
    return table


def folded_values(name: str, values: Mapping[str, Any], width: int) -> str:
    """Plain values after their name, in as many lines as they need."""
    line = f"{name}: {values_line(values)}"
    return fill(
        line,
        width,
        subsequent_indent="  ",
        # A path or the name of a setting stays whole, so that it can be copied.
        break_on_hyphens=False,
        break_long_words=False,
    )


def values_line(values: Mapping[str, Any], above: str = "") -> str:
    """Plain values on one line; nested ones by their dotted name."""
    parts = []
    for name, value in values.items():
        path = f"{above}{name}"
        if not isinstance(value, Mapping):
            parts.append(f"{path} {_short(value)}")
        elif value:
            parts.append(values_line(value, f"{path}."))
    return ", ".join(parts)


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(map(_short, value))
    if isinstance(value, Mapping):
        return values_line(value)
    return str(value)


PlainTable = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, heads and rows."""


def markdown_page(
    title: str, tables: Iterable[PlainTable], remarks: Iterable[str]
) -> str:
    """Tables and remarks as a page of Markdown."""
    lines = [f"# {title}", ""]
    for name, heads, rows in tables:
        rule = ["---"] * len(heads)
        lines += [f"**{name}**", ""]
        lines += map(_row, [heads, rule, *rows])
        lines.append("")
    lines += [f"- {remark}" for remark in remarks]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
