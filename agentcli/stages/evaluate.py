"""eval, pass-at-k, test-time-branch: a whole panel, every episode exactly once, in the panel's order.

All three sample trajectories and reduce them to episodes in evaluation/<label>.jsonl; the summary beside it
(evaluation/<label>.json) holds rates with intervals, the panel's hash and the ledger. With `evaluation.budget` the panel is
walked until so much is spent; file, summary and manifest then name that part of it.
"""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.summary import pass_at_k_summary, summarise
from agentcli.exploration.budget import Allowance, parse_budget
from agentcli.exploration.registry import make
from agentcli.records.files import read_json, read_records, write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import SCHEMA_VERSION, Episode, Ledger, Outcome, Panel, StageRecord, Task
from agentcli.stages.panels import make_panel, panel_for
from agentcli.stages.resources import Stopwatch, grow, open_engines, open_policy
from agentcli.stages.rollout import (
    refuse_other_tasks,
    sampling_inputs,
    single,
    walked_part,
    with_model,
)
from agentcli.stages.session import Invocation, Session, rewriting
from agentcli.stages.tally import RESUMABLE, Tally, share_of_success

SECTIONS = ("environment", "policy", "prompt", "rollout", "evaluation")


def evaluate(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> dict[str, Any]:
    """`evaluation.samples` episodes per task of `evaluation.split`; returns the summary."""
    settings = _for_panel(
        settings, single(settings.rollout.method), settings.evaluation.samples, settings.evaluation.split
    )
    return _run(settings, out, "eval", invocation, model)


def pass_at_k(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> dict[str, Any]:
    """`evaluation.n` episodes per task and pass@k for k up to `evaluation.k` (000 appendix C.2).

    Raises UsageError unless 1 <= k <= n.
    """
    n, k = settings.evaluation.n, settings.evaluation.k
    if not 1 <= k <= n:
        raise UsageError(f"pass-at-k needs 1 <= k <= n, got n={n} and k={k}; set --n and --k")
    settings = _for_panel(settings, single(settings.rollout.method), n, f"pass-at-k-{settings.evaluation.split}")
    return _run(settings, out, "pass-at-k", invocation, model, k=k)


def test_time_branch(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> dict[str, Any]:
    """`evaluation.samples` episodes per task, voting on the decision after every <explore> (000 appendix C.5)."""
    if settings.rollout.method == "dpepo":
        raise UsageError("test-time-branch votes on one action; a policy of rollout.method dpepo answers with several")
    label = f"test-time-branch-{settings.evaluation.split}"
    settings = _for_panel(settings, "test-time-branch", settings.evaluation.samples, label)
    return _run(settings, out, "test-time-branch", invocation, model)


def _for_panel(settings: Settings, method: str, samples: int, label: str) -> Settings:
    wanted, policy = settings.evaluation, settings.policy
    temperature = policy.temperature if wanted.temperature is None else wanted.temperature
    replace = msgspec.structs.replace
    return replace(
        settings,
        environment=replace(settings.environment, split=wanted.split, tasks=wanted.tasks),
        policy=replace(policy, temperature=temperature),
        rollout=replace(
            settings.rollout,
            method=method,
            leaves=samples,
            copies=wanted.copies or settings.rollout.copies,
            beyond=wanted.beyond or settings.rollout.beyond,
            distinct=0,  # the samples of an evaluation are independent draws of the policy
            iteration=None,
            budget=wanted.budget,
        ),
        evaluation=replace(wanted, label=wanted.label or label, temperature=temperature),
    )


def _run(
    settings: Settings,
    out: Path,
    stage: str,
    invocation: Invocation,
    model: str | None,
    k: int | None = None,
) -> dict[str, Any]:
    run, label = RunDirectory(out), settings.evaluation.label or ""
    settings = with_model(settings, model)
    path, samples = run.evaluation(label), settings.rollout.leaves
    with Session(
        f"evaluation/{label}", run, settings, invocation, SECTIONS, inputs=sampling_inputs(settings, model)
    ) as session:
        resumed = session.check([path, path.with_suffix(".json")])
        if session.done and _is_whole(path, session.done, samples):
            return session.nothing_owed(read_json(path.with_suffix(".json"), dict))
        panel, budget, seconds = asyncio.run(_sample(session, path, resumed, stage, model))
        summary = _summary(settings, stage, path, panel, k) | budget
        write_json(path.with_suffix(".json"), summary)
        session.finish(
            panel=panel.sha256,
            panel_name=panel.name,
            counts={"tasks": len(panel.tasks), **summary["outcomes"]},
            ledger=msgspec.convert(summary["ledger"], Ledger),
            statistics={"success": summary["success"], **budget},
            seconds=seconds,
        )
    return summary


async def _sample(
    session: Session, path: Path, resumed: bool, stage: str, model: str | None
) -> tuple[Panel, dict[str, Any], dict[str, float]]:
    """Write the episodes that are owed; returns the panel that was walked, what was spent of the budget, and where the time
    went."""
    settings, progress = session.settings, session.progress
    budget = parse_budget(settings.rollout.budget)
    async with open_engines(settings) as engines:
        panel = panel_for(engines.world, settings.environment)
        finished = _finished(path, settings.rollout.leaves) if resumed else []
        refuse_other_tasks(path, (episode.task for episode in finished), panel)
        _refuse_untold_moves(path, finished, settings)
        if resumed:
            _write(path, finished)
        kept = {episode.task: episode.ledger or Ledger() for episode in finished if episode.sample == 0}
        allowance = Allowance(budget, panel.tasks, settings, kept)
        owed = [task for task in allowance.paid(panel.tasks) if task.id not in kept]
        async with open_policy(settings, engines, model) as policy:
            watch, tally, title = Stopwatch(engines, policy), Tally(), f"{stage} {settings.evaluation.split}"
            progress.start(title, len(panel.tasks), len(kept), _success(finished))
            with session.appending(path) as write:
                explore = make(settings.rollout.method)
                async with aclosing(grow(explore, engines, policy, settings, owed, settings.seed, allowance)) as trees:
                    async for tree in trees:
                        for episode in episodes(tree):
                            write(episode)
                        tally.add(tree)
                        progress.advance(1, success=share_of_success(tree))
            progress.stop()
            seconds = watch.seconds()
    for line in tally.warnings(settings, RESUMABLE):
        progress.note(line)
    walked = walked_part(panel, allowance, progress)
    if kept:
        _in_panel_order(path, walked)
    return walked, allowance.report(walked.tasks), seconds


def _finished(path: Path, samples: int) -> list[Episode]:
    """The episodes of the tasks that have all their samples and none errored."""
    found: dict[str, list[Episode]] = {}
    if path.exists():
        for episode in read_records(path, Episode):
            found.setdefault(episode.task, []).append(episode)
    whole = [rows for rows in found.values() if len(rows) == samples]
    return [row for rows in whole if all(row.outcome is not Outcome.ERRORED for row in rows) for row in rows]


def _success(rows: list[Episode]) -> float | None:
    """Share of success; None without an episode."""
    return sum(row.outcome is Outcome.SUCCESS for row in rows) / len(rows) if rows else None


def _refuse_untold_moves(path: Path, finished: list[Episode], settings: Settings) -> None:
    """Raises DataError where episodes in several copies count responses (Episode.moves): those to come count moves."""
    if settings.rollout.method == "dpepo" and any(row.moves is None for row in finished):
        raise DataError(f"{path}: written by an agentcli that did not count moves; start again with --overwrite")


def _is_whole(path: Path, done: StageRecord, samples: int) -> bool:
    """Whether the files are those of the evaluation that ended: every task of its panel, in order, with all samples."""
    if not path.with_suffix(".json").exists():
        return False
    rows = _finished(path, samples)
    tasks = [Task(id=name, world="", split="", kind="") for name in dict.fromkeys(row.task for row in rows)]
    return len(rows) == samples * len(tasks) and make_panel("", "", tasks).sha256 == done.panel


def _in_panel_order(path: Path, panel: Panel) -> None:
    places = {task.id: place for place, task in enumerate(panel.tasks)}
    rows = (row for row in read_records(path, Episode) if row.task in places)
    _write(path, sorted(rows, key=lambda row: (places[row.task], row.sample)))


def _write(path: Path, rows: list[Episode]) -> None:
    with rewriting(path) as writer:
        for row in rows:
            writer.write(row)


def _summary(settings: Settings, stage: str, path: Path, panel: Panel, k: int | None) -> dict[str, Any]:
    rows = list(read_records(path, Episode))
    return {
        "schema_version": SCHEMA_VERSION,
        "stage": stage,
        "split": settings.evaluation.split,
        "label": settings.evaluation.label,
        "model": settings.policy.model,
        "policy": settings.policy.kind,
        "seed": settings.seed,
        "samples": settings.rollout.leaves,
        "temperature": settings.policy.temperature,
        "panel": {"name": panel.name, "tasks": len(panel.tasks), "sha256": panel.sha256},
        **summarise(rows),
        **({"pass_at_k": pass_at_k_summary(rows, k)} if k else {}),
        "ledger": msgspec.to_builtins(sum((row.ledger for row in rows if row.ledger), Ledger())),
    }
