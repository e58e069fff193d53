"""Tables of `agentcli compare`: one row or column a run, the first is the reference. Made from plain numbers; prints nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcli.reports.blocks import Blocks
from agentcli.reports.tables import RATIOS, percent, rate

Rows = Mapping[str, Mapping[str, Any]]
"""By run."""
RESPONSES = {"explore": "explore", "malformed": "malformed", "cut at max_tokens": "cut"}
"""Shares of what the policy said, by the names they are shown under (evaluation.growth)."""
SIBLINGS = {
    "distinct actions % of siblings": "distinct",
    "distinct % at the initial state": "distinct_at_start",
    "distinct % at forks": "distinct_of_forks",
}
"""Shares of different actions among siblings. Of whole loops only the first is known."""


def comparison_tables(result: Mapping[str, Any]) -> Iterator[Blocks]:
    """Every table of a comparison (analysis.compare): evaluations, their kinds, Wilcoxon, trees, training."""
    for label, runs in result["evaluations"].items():
        yield label_table(label, runs)
        yield behaviour_table(label, runs)
        yield kinds_table(label, runs)
    if "wilcoxon" in result:
        yield wilcoxon_table(result["wilcoxon"], result["benchmarks"])
    if "trees" in result:
        yield trees_table(result["trees"])
    if "training" in result:
        yield training_table(result["training"])


def label_table(label: str, runs: Rows) -> Blocks:
    """Success of each run, and its gain over the first in points. Where there are any: errored episodes; of runs that walked
    unlike parts of the panel, the tasks that gain and p-value are of; with several samples a task, the tasks solved."""
    extra = {
        "errored": (
            any(row["outcomes"]["errored"] for row in runs.values()),
            lambda row: str(row["outcomes"]["errored"]),
        ),
        "tasks in common": (len({row["tasks"] for row in runs.values()}) > 1, _common),
        "tasks solved % (95 %)": (
            any(row["episodes"] > row["tasks"] for row in runs.values()),
            lambda row: rate(row["solved"]),
        ),
    }
    more = {name: cell for name, (wanted, cell) in extra.items() if wanted}
    heads = ("episodes", "success % (95 %)", "gain (95 %)", "McNemar p", *more)
    table = Blocks(f"evaluation {label}, against the first", ("run",), heads)
    for name, row in runs.items():
        against = row.get("against")
        cells = [str(row["episodes"]), rate(row["success"]), _gain(against), _p(against)]
        table.add((name,), [*cells, *(cell(row) for cell in more.values())])
    return table


def behaviour_table(label: str, runs: Rows) -> Blocks:
    """What the episodes were like, and what was paid for a task (all samples, votes and copies), also as a multiple of what the
    first paid for the tasks that both walked."""
    heads = ("steps an episode", *(f"{name} %" for name in RATIOS), "steps a task", "tokens a task")
    table = Blocks(f"evaluation {label}: episodes, and what a task cost", ("run",), heads)
    for name, row in runs.items():
        ratios = (percent(row[ratio]) for ratio in RATIOS)
        paid = [
            f"{row['ledger'][count] / max(1, row['tasks']):.1f}" + _times(row.get("against", {}).get(ratio))
            for count, ratio in (("steps", "steps"), ("generated_tokens", "tokens"))
        ]
        table.add((name,), [f"{row['steps']:.1f}", *ratios, *paid])
    return table


def kinds_table(label: str, runs: Rows) -> Blocks:
    """Success by task kind, a column a run, with the gain over the first."""
    table = Blocks(f"evaluation {label} by kind: success % (95 %), gain", ("kind",), list(runs))
    for kind in dict.fromkeys(kind for row in runs.values() for kind in row["kinds"]):
        table.add((kind,), [_of_kind(row["kinds"].get(kind)) for row in runs.values()])
    return table


def wilcoxon_table(tests: Rows, benchmarks: Sequence[str]) -> Blocks:
    """The signed-rank test over benchmarks."""
    title = f"exact Wilcoxon signed-rank over {', '.join(benchmarks)}, against the first"
    table = Blocks(title, ("run",), ("benchmarks", "p"))
    for name, test in tests.items():
        table.add((name,), (str(test["benchmarks"]), f"{test['p']:.2g}"))
    return table


def trees_table(runs: Rows) -> Blocks:
    """What rollouts cost and brought: a column a run; every cost of a further run also as a multiple of the first's."""
    rows = list(runs.values())
    table = Blocks("trees, against the first", ("",), list(runs))
    table.add(("method",), [row["method"] for row in rows])
    table.add(("tasks",), [str(row["tasks"]) for row in rows])
    table.add(("success of leaves % (95 %)",), [rate(row["success"]) for row in rows])
    _errored(table, rows)
    for name, part in RESPONSES.items():
        shares = [row[part] for row in rows]
        table.add((f"{name} % of responses",), list(map(_share, shares)))
    _paid(table, rows)
    _seconds(table, rows, ("policy", "environment"))
    return table


def training_table(runs: Rows) -> Blocks:
    """What loops cost: a column a run; every cost of a further run also as a multiple of the first's. The success of what they
    sampled is shown as each loop's course alone: its tasks and its policy are its own."""
    rows = list(runs.values())
    table = Blocks("what training cost, against the first (each loop on its own tasks)", ("",), list(runs))
    table.add(("method",), [row["method"] or "-" for row in rows])
    table.add(("credit",), [row["credit"] or "-" for row in rows])
    table.add(("iterations",), [_iterations(row) for row in rows])
    table.add(("trees",), _multiples([row["trees"] for row in rows], ","))
    _errored(table, rows)
    _paid(table, rows)
    responses = [row["responses"] or {} for row in rows]
    table.add(("responses updated",), _multiples([own.get("updated") for own in responses], ","))
    shares = [None if own.get("share") is None else 100 * own["share"] for own in responses]
    table.add(("updated % of responses",), _multiples(shares, ".1f"))
    table.add(("updates",), _multiples([row["updates"] for row in rows], ","))
    _seconds(table, rows, ("policy", "environment", "train"))
    table.add(("success of leaves %, by part",), [" ".join(map(percent, row["success_by_part"])) for row in rows])
    return table


def _iterations(row: Mapping[str, Any]) -> str:
    if row["iterations"] is None:
        return "-"
    return f"{row['iterations']:,}" + ("" if row["ended"] and not row["unfinished"] else " (unfinished)")


def _errored(table: Blocks, rows: Sequence[Mapping[str, Any]]) -> None:
    if any(row["errored"] for row in rows):
        table.add(("errored leaves",), [f"{row['errored']:,}" for row in rows])


def _paid(table: Blocks, rows: Sequence[Mapping[str, Any]]) -> None:
    """What evaluation.growth.paid says."""
    for field in rows[0]["ledger"]:
        table.add((field.replace("_", " "),), _multiples([row["ledger"][field] for row in rows], ","))
    table.add(("shared % of prompt tokens",), [percent(row["shared"]) for row in rows])
    for name, part in SIBLINGS.items():
        if part in rows[0]:
            table.add((name,), [_share(row[part]) for row in rows])
    for what in ("steps", "tokens"):
        name = "generated tokens per leaf" if what == "tokens" else "steps per leaf"
        table.add((name,), _multiples([row[f"{what}_per_leaf"] for row in rows], ".1f"))


def _seconds(table: Blocks, rows: Sequence[Mapping[str, Any]], parts: Sequence[str]) -> None:
    for part in parts:
        seconds = [row["seconds"].get(part) for row in rows]
        brief = any(value is not None and value < 10 for value in seconds)
        table.add((f"{part} seconds",), _multiples(seconds, ",.2f" if brief else ",.0f"))


def _multiples(values: Sequence[float | None], form: str) -> list[str]:
    """Every value, all but the first with its multiple of the first: "1,200", "1,800 x1.50"; "-" for none."""
    first, *others = values
    ratios = [None, *(value / first if first and value is not None else None for value in others)]
    return [
        "-" if value is None else f"{value:{form}}" + _times(ratio) for value, ratio in zip(values, ratios, strict=True)
    ]


def _share(share: float | None) -> str:
    """ "12.5", or "-" where there is nothing to be a share of."""
    return "-" if share is None else percent(share)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" x{ratio:.2f}"


def _gain(against: Mapping[str, Any] | None) -> str:
    if against is None:
        return ""
    gain = against["success"]
    signed = [f"{100 * gain[name]:+.1f}" for name in ("difference", "low", "high")]
    return f"{signed[0]} ({signed[1]} to {signed[2]})"


def _p(against: Mapping[str, Any] | None) -> str:
    if against is None:
        return ""
    return "-" if against["mcnemar"] is None else f"{against['mcnemar']:.2g}"


def _common(row: Mapping[str, Any]) -> str:
    return str(row["against"]["tasks"]) if "against" in row else ""


def _of_kind(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    against = row.get("against")
    gain = f" {100 * against['success']['difference']:+.1f}" if against and against["tasks"] else ""
    return rate(row["success"]) + gain
