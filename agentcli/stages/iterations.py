"""A loop's iterations on disk: their folders, which are done, and what is kept."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentcli.errors import AgentCliError
from agentcli.evaluation.record import EvaluationSummary, LoopMetrics, Rate, figures
from agentcli.records.files import part_of, read_json
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.types import StageRecord
from agentcli.stages.rollout import results_of_run
from agentcli.stages.session import rewriting


def iteration_folder(out: Path, iteration: int) -> Path:
    """The run directory of one iteration."""
    return out / f"iteration_{iteration:03d}"


def finished(run: RunDirectory, stage: str, output: str) -> StageRecord | None:
    """The manifest entry of a finished stage whose output still exists."""
    return run.finished(stage) if is_there(run.path / output) else None


def is_trained(out: Path, iteration: int) -> bool:
    """Whether nothing is left to train: weights exist, or were used and deleted."""
    run = RunDirectory(iteration_folder(out, iteration))
    if run.finished("train") is None:
        return False
    return is_there(run.checkpoint) or is_trained(out, iteration + 1)


def evaluation_of(run: RunDirectory, label: str | None) -> EvaluationSummary | None:
    """The evaluation summary of one iteration, if it has finished."""
    if label is None:
        return None
    summary = run.evaluation(label).with_suffix(".json")
    if run.finished(f"evaluation/{label}") is None or not is_there(summary):
        return None
    return read_json(summary, EvaluationSummary)


def evaluation_figures(run: RunDirectory, label: str | None) -> dict[str, float]:
    """The metrics of its evaluation; empty without one."""
    summary = evaluation_of(run, label)
    return figures(summary, "eval") if summary else {}


def updates_before(run: RunDirectory) -> int:
    """Number of optimiser updates before an iteration's training."""
    record = run.finished("train")
    return record.statistics.get("updates_before", 0) if record else 0


def updates_after(run: RunDirectory) -> int:
    """Number of optimiser updates after an iteration's training."""
    record = run.finished("train")
    updates = record.statistics.get("updates", 0) if record else 0
    return updates_before(run) + updates


def loop_metrics(out: Path, iteration: int, label: str | None) -> LoopMetrics:
    """The metrics line of one iteration."""
    run = RunDirectory(iteration_folder(out, iteration))
    measured = figures(results_of_run(run), "rollout")
    return LoopMetrics(
        iteration=iteration,
        updates=updates_before(run),
        figures=measured | evaluation_figures(run, label),
    )


def refuse_unreadable(run: RunDirectory, method: str) -> None:
    """Raises AgentCliError if no response was readable and nothing was learned.

    The next iteration would be the same.
    """
    rollout = run.finished("rollout")
    train = run.finished("train")
    if rollout is None or train is None or train.statistics.get("updates", 0):
        return
    responses = rollout.counts.get("responses", 0)
    if responses and rollout.counts["malformed_responses"] == responses:
        raise AgentCliError(
            f"{run.path}: none of {responses} responses was readable, and no update was "
            f"made; teach the policy the form of {method}, and start from it, with: "
            f"agentcli demos --set rollout.method={method} -o runs/demos-{method} && "
            f"agentcli sft runs/demos runs/demos-{method}"
        )


def has_fallen(successes: Sequence[Rate]) -> bool:
    """Whether the newest success is below half of the best, for certain."""
    best = max(successes, key=lambda success: success.rate)
    newest = successes[-1]
    return newest.rate < best.rate / 2 and newest.high < best.low


def write_metrics(path: Path, lines: Sequence[LoopMetrics]) -> None:
    """Replaces the loop's metrics.jsonl, so that resuming duplicates no lines."""
    with rewriting(path) as writer:
        for line in lines:
            writer.write(line)


def best_iteration(lines: Sequence[LoopMetrics]) -> int | None:
    """The first iteration with the highest success in an evaluation."""
    evaluated = [line for line in lines if "eval/success" in line.figures]
    if not evaluated:
        return None
    return max(evaluated, key=lambda line: line.figures["eval/success"]).iteration


def drop_old(out: Path, newest: int, keep: int, best: int | None) -> bool:
    """Deletes the weights, critics and optimisers of older iterations.

    The newest `keep` iterations and the best one stay. Returns whether anything was
    deleted.
    """
    dropped = False
    for iteration in range(newest - keep + 1):
        run = RunDirectory(iteration_folder(out, iteration))
        if iteration == best or not run.checkpoint.exists():
            continue
        # The checkpoint goes last, so that anything a kill leaves is deleted next time.
        run.optimizer.unlink(missing_ok=True)
        shutil.rmtree(run.critic, ignore_errors=True)
        shutil.rmtree(run.checkpoint)
        dropped = True
    return dropped


def point_to(link: Path, target: Path) -> None:
    """Makes `link` a symbolic link to `target`, atomically.

    `target` is relative to the link's folder.
    """
    temporary = part_of(link)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    os.replace(temporary, link)
