"""Reads the runs of reproduce_small.sh below one folder and writes FOLDER/results.json.

usage: reproduce_collect.py FOLDER SEED... --regime NAME --methods NAME...

Reads FOLDER/SEED/{sft,METHOD}; reproduce_results.py says what is written. A loop that
has not ended is left out, and named on stderr.
"""

import argparse
import platform
import sys
from pathlib import Path
from typing import Any

import msgspec
import reproduce_results as shape

from agentcli.analysis.compare_training import read_iteration
from agentcli.credit.carl import first_phase
from agentcli.credit.survey import ROOT
from agentcli.errors import AgentCliError, DataError
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.record import EvaluationSummary
from agentcli.evaluation.summary import successes_by_task, summarise
from agentcli.evaluation.training import training_cost
from agentcli.records.files import read_json, read_records, sha256_file
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.trees import leaves
from agentcli.records.types import Episode, Outcome, StageRecord, Tree
from agentcli.training.metrics import TrainMetrics

OF_PLACE = ("seed", "policy.model", "train.reference")
"""Settings that say which seed and which folder, not how; `run.start` and `run.seed`
say it.
"""


def collect(
    folder: Path, regime: str, seeds: list[int], methods: list[str]
) -> shape.Results:
    """Everything that has ended. Raises DataError for damaged files and where there is
    no loop at all.
    """
    collected = shape.Results(panels={}, settings={}, starts=[], runs=[])
    for seed in seeds:
        sft = RunDirectory(folder / str(seed) / "sft")
        if sft.finished("sft") is None:
            print(f"{sft.path}: has not ended, left out", file=sys.stderr)
            continue
        scores = evaluations(sft, collected.panels)
        collected.starts.append(
            shape.Start(
                regime=regime,
                seed=seed,
                policy=weights(sft.checkpoint),
                evaluations=scores,
            )
        )
        for method in methods:
            run = RunDirectory(folder / str(seed) / method)
            record = run.finished("run")
            if record is None:
                print(f"{run.path}: has not ended, left out", file=sys.stderr)
                continue
            collected.runs.append(
                loop(run, record, regime, method, seed, collected.panels)
            )
    if not collected.runs:
        raise DataError(
            f"{folder}: no loop has ended; type the command that began it again, it "
            "goes on"
        )
    return collected


def loop(
    run: RunDirectory,
    record: StageRecord,
    regime: str,
    method: str,
    seed: int,
    panels: dict[str, shape.PanelGames],
) -> shape.Run:
    """One loop. `panels` get those that it was evaluated on."""
    folders = loop_folders(run.path)
    iterations = [read_iteration(folder) for folder in folders]
    cost = training_cost(iterations)
    responses = cost.responses
    train_seconds = cost.seconds["train"]
    if responses is None or cost.updates is None:
        raise DataError(
            f"{run.path}: an iteration does not tell what it trained on; go on with "
            "--resume"
        )
    settings = {
        path: value
        for path, value in flat(record.settings).items()
        if path not in OF_PLACE
    }
    start = [
        sha256
        for path, sha256 in record.inputs.items()
        if path.endswith("model.safetensors")
    ]
    if len(start) != 1:
        raise DataError(
            f"{run.manifest_path}: run.inputs: names {len(start)} model.safetensors, "
            "not 1"
        )
    return shape.Run(
        regime=regime,
        method=method,
        seed=seed,
        start=start[0],
        settings=settings,
        git_commit=record.git_commit,
        day=record.finished[:10],
        machine=processor(),
        iterations=course(folders, iterations),
        evaluations=evaluations(run, panels),
        ledger=msgspec.to_builtins(cost.ledger),
        trees=cost.trees,
        updated=responses.updated,
        given=responses.given,
        updates=cost.updates,
        train_seconds=train_seconds,
    )


def processor() -> str:
    """The name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def course(folders: list[Path], iterations: list[Any]) -> shape.Iterations:
    """What the manifests, the metrics and the trees of the iterations tell."""
    lines = [updates(folder) for folder in folders]
    moves = [
        summarise(leaf for tree in trees(folder) for leaf in episodes(tree))
        for folder in folders
    ]
    return shape.Iterations(
        success=rounded([success_from_scratch(trees(folder)) for folder in folders]),
        leaves=[iteration.leaves for iteration in iterations],
        steps=[iteration.ledger.steps for iteration in iterations],
        entropy=rounded([entropy(lines_of_one) for lines_of_one in lines]),
        advantage_min=rounded(
            [
                min((line.advantage_min for line in lines_of_one), default=None)
                for lines_of_one in lines
            ]
        ),
        advantage_max=rounded(
            [
                max((line.advantage_max for line in lines_of_one), default=None)
                for lines_of_one in lines
            ]
        ),
        repetitive=rounded([moves_of_one.repetitive for moves_of_one in moves]),
        inadmissible=rounded([moves_of_one.inadmissible for moves_of_one in moves]),
    )


def trees(folder: Path) -> list[Tree]:
    """Those of one iteration."""
    return list(read_records(RunDirectory(folder).existing_trees(), Tree))


def success_from_scratch(grown: list[Tree]) -> float:
    """Share of success among the trajectories that are draws of the policy; errored
    ones are left out.
    """
    ends = []
    for tree in grown:
        counted_steps = from_scratch(tree)
        ends += [leaf.outcome for leaf in leaves(tree) if leaf.id in counted_steps]
    counted = [outcome for outcome in ends if outcome is not Outcome.ERRORED]
    return sum(outcome is Outcome.SUCCESS for outcome in counted) / max(1, len(counted))


def from_scratch(tree: Tree) -> set[int]:
    """The steps of those trajectories: all where the method forks nothing."""
    if tree.roots is None:
        return set(range(len(tree.steps)))
    return first_phase(
        [ROOT if step.parent is None else step.parent for step in tree.steps],
        tree.roots,
    )


def updates(folder: Path) -> list[TrainMetrics]:
    """Those of one iteration; none where no response had a gradient."""
    path = RunDirectory(folder).metrics
    return list(read_records(path, TrainMetrics)) if path.exists() else []


def entropy(lines: list[TrainMetrics]) -> float | None:
    """Mean over tokens."""
    tokens = sum(line.tokens for line in lines)
    return (
        sum(line.entropy * line.tokens for line in lines) / tokens if tokens else None
    )


def evaluations(
    run: RunDirectory, panels: dict[str, shape.PanelGames]
) -> dict[str, shape.Scores]:
    """All that have ended, by label."""
    scores = {}
    for stage in run.load_manifest().stages:
        section, _, label = stage.partition("/")
        if section == "evaluation":
            scores[label] = scores_of(run.evaluation(label), panels)
    return scores


def scores_of(path: Path, panels: dict[str, shape.PanelGames]) -> shape.Scores:
    """One evaluation. Raises DataError unless each game has as many samples."""
    summary = read_json(path.with_suffix(".json"), EvaluationSummary)
    rows = list(read_records(path, Episode))
    by_task, kinds = successes_by_task(rows), {row.task: row.kind for row in rows}
    if (
        len(rows) != summary.samples * summary.panel.tasks
        or len({*map(len, by_task.values())}) > 1
    ):
        raise DataError(
            f"{path}: not {summary.samples} episodes for each game; evaluate again "
            "with --resume"
        )
    games = sorted(by_task)
    panels[summary.panel.sha256] = shape.PanelGames(
        name=summary.panel.name, kinds=[kinds[game] for game in games]
    )
    return shape.Scores(
        panel=summary.panel.sha256,
        samples=summary.samples,
        n=len(rows),
        rate=summary.success.rate,
        low=summary.success.low,
        high=summary.success.high,
        successes=[sum(by_task[game]) for game in games],
        repetitive=round(summary.repetitive, 6),
        inadmissible=round(summary.inadmissible, 6),
    )


def weights(checkpoint: Path) -> str:
    """sha256 of a model directory's weights."""
    return sha256_file(checkpoint / "model.safetensors")


def flat(settings: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Settings by path; empty sections are left out."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            values |= flat(value, f"{path}{name}.")
        else:
            values[path + name] = value
    return values


def rounded(values: list[Any]) -> list[Any]:
    """To 6 decimals."""
    return [None if value is None else round(value, 6) for value in values]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--regime", required=True)
    parser.add_argument("--methods", nargs="+", required=True)
    chosen = parser.parse_args()
    try:
        everything = collect(chosen.folder, chosen.regime, chosen.seeds, chosen.methods)
        shape.save(
            chosen.folder / "results.json", shape.merge([("results.json", everything)])
        )
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
