"""eval, pass-at-k, test-time-branch: a whole panel, every episode exactly once.

All three write trees, as a rollout does, and at the end compute their episodes
(evaluation/<label>.jsonl) and a summary (evaluation/<label>.json) with rates and their
intervals, the panel's hash and the ledger. Then the trees go that `evaluation.trees`
does not keep; until then, only the trees say what has been played.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from agentcli.environments.protocol import World
from agentcli.environments.registry import settle
from agentcli.errors import UsageError
from agentcli.evaluation.record import BudgetSpent, EvaluationSummary, WalkedPanel
from agentcli.evaluation.summary import pass_at_k_summary, summarise
from agentcli.exploration.settings import VOTING, added_fields, as_method
from agentcli.records.files import read_json, read_records, rewriting, write_json
from agentcli.records.grouping import grouped
from agentcli.records.pictures import drop_unnamed
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import EvaluationSettings, Settings
from agentcli.records.shards import ShardExtent
from agentcli.records.types import Episode, Ledger, Outcome, Panel, StageRecord, Tree
from agentcli.stages import sampling
from agentcli.stages.cluster import Backend
from agentcli.stages.panels import (
    panel_for,
    panel_overlaps,
    panels_of,
    training_overlaps,
)
from agentcli.stages.plan import with_changes, with_model, without
from agentcli.stages.rollout import (
    FinishedTask,
    PanelWalk,
    TreeFile,
    WalkPlan,
    part_to_walk,
    refuse_other_tasks,
    walk,
)
from agentcli.stages.session import Session
from agentcli.stages.tally import Tally, counted, share_of_success

EpisodesByTask = dict[str, list[Episode]]


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan(WalkPlan):
    """An evaluation that is ready to begin."""

    command: str
    """eval, pass-at-k or test-time-branch."""
    k: int | None = None
    """The number of attempts k in pass@k."""

    @cached_property
    def determining(self) -> dict[str, Any]:
        """Without the deadline: what it cut is errored, and is played again."""
        values = super().determining
        return without(values, {"rollout": ("deadline_seconds",)})

    @property
    def episodes(self) -> Path:
        """The file of episodes; the summary is next to it."""
        return self.outputs[0]

    @property
    def summary(self) -> Path:
        """The file of the summary."""
        return self.outputs[1]

    @property
    def trees(self) -> Path:
        """The file of the trees that are kept."""
        return self.outputs[2]

    def counts(self) -> dict[str, int]:
        """The number of tasks and of their episodes."""
        tasks = len(self.panel.tasks)
        return {"tasks": tasks, "episodes": tasks * self.settings.rollout.leaves}


def plan_evaluation(
    settings: Settings,
    out: Path,
    *,
    model: str | None,
    world: World | None = None,
) -> EvaluationPlan:
    """Plans `evaluation.samples` episodes per task of `evaluation.split`.

    `world` is passed if it already exists.
    """
    method = settings.rollout.alone
    settings = _sampled(settings, method, settings.evaluation.samples)
    return _plan("eval", settings, out, model, world=world)


def plan_pass_at_k(
    settings: Settings, out: Path, *, model: str | None
) -> EvaluationPlan:
    """Plans `evaluation.n` episodes per task, for pass@k with k up to `evaluation.k`.

    SPARK appendix C.2. Raises UsageError unless 1 <= k <= n.
    """
    n = settings.evaluation.n
    k = settings.evaluation.k
    if not 1 <= k <= n:
        raise UsageError(
            f"pass-at-k needs 1 <= k <= n, got n={n} and k={k}; set --n and --k"
        )
    settings = _sampled(settings, settings.rollout.alone, n)
    return _plan("pass-at-k", settings, out, model, k, prefix="pass-at-k-")


def plan_test_time_branch(
    settings: Settings, out: Path, *, model: str | None
) -> EvaluationPlan:
    """Plans `evaluation.samples` episodes per task, with a vote after every <explore>.

    SPARK appendix C.5. Raises UsageError for a policy that answers with several
    actions.
    """
    if settings.rollout.numbered:
        raise UsageError(
            "test-time-branch votes on one action; a policy of rollout.method "
            f"{settings.rollout.method} answers with several"
        )
    settings = _sampled(settings, VOTING, settings.evaluation.samples)
    return _plan(VOTING, settings, out, model, prefix=f"{VOTING}-")


def _sampled(settings: Settings, method: str, samples: int) -> Settings:
    """Settings whose rollout is the evaluation."""
    settings = settle(settings)
    wanted = settings.evaluation
    temperature = wanted.temperature
    if temperature is None:
        temperature = settings.policy.temperature
    rollout = msgspec.structs.replace(
        as_method(settings.rollout, method, **_of_method(wanted, method)),
        leaves=samples,
        # At a deadline none is dropped: slow ones may be the wrong ones.
        minimum_leaves=samples,
        # The samples of an evaluation are independent draws from the policy.
        distinct=0,
        iteration=None,
        budget=wanted.budget,
    )
    return with_changes(
        msgspec.structs.replace(settings, rollout=rollout),
        environment={"split": wanted.split, "tasks": wanted.tasks},
        policy={"temperature": temperature},
        evaluation={"temperature": temperature},
    )


def _of_method(wanted: EvaluationSettings, method: str) -> dict[str, Any]:
    """The fields of `method` as `evaluation` has them.

    None there means the value in `rollout`. A vote has all of its own: those of the
    same names in `rollout` belong to another method.
    """
    fields = added_fields(method)
    if method == VOTING:
        return {
            field.name: getattr(wanted, field.name, field.default) for field in fields
        }
    values = {field.name: getattr(wanted, field.name, None) for field in fields}
    return {name: value for name, value in values.items() if value is not None}


def _plan(
    command: str,
    settings: Settings,
    out: Path,
    model: str | None,
    k: int | None = None,
    world: World | None = None,
    prefix: str = "",
) -> EvaluationPlan:
    run = RunDirectory(out)
    world = sampling.check_sampling(settings, model, world)
    whole = panel_for(world, settings.environment)
    # Labels name files: other commands on the same split must not share one.
    label = settings.evaluation.label or f"{prefix}{whole.name}"
    settings = with_changes(settings, evaluation={"label": label})
    if settings.environment.panel is not None:
        # Its tasks are played whatever `evaluation.split` says.
        splits = ", ".join(dict.fromkeys(task.split for task in whole.tasks))
        settings = with_changes(
            settings, environment={"split": splits}, evaluation={"split": splits}
        )
    return EvaluationPlan(
        stage=f"evaluation/{label}",
        run=run,
        settings=with_model(settings, model),
        sections=(*sampling.SECTIONS, "evaluation"),
        inputs=sampling.inputs_of(settings, model),
        sources=sampling.files_read(settings, model),
        outputs=outputs_of(run, label),
        world=world,
        model=model,
        panel=part_to_walk(settings, whole),
        whole=whole,
        seed=settings.seed,
        command=command,
        k=k,
    )


def outputs_of(run: RunDirectory, label: str) -> list[Path]:
    """The files of an evaluation: its episodes, its summary and its trees."""
    episodes = run.evaluation(label)
    return [episodes, episodes.with_suffix(".json"), run.evaluation_trees(label)]


async def perform(
    plan: EvaluationPlan,
    session: Session,
    backend: Backend | None = None,
) -> EvaluationSummary:
    """Writes the episodes and their summary, and returns the summary.

    Raises AgentCliError at the end if too many episodes errored.
    """
    note = session.progress.note
    settings = plan.settings
    if plan.command != "eval" and session.done is None:
        counts = plan.counts()
        note(
            f"{counts['episodes']:,} episodes to play, "
            f"{settings.rollout.leaves} of each of {counts['tasks']:,} tasks; "
            "--tasks N takes fewer"
        )
    votes = plan.command == "test-time-branch"
    several = votes or settings.rollout.leaves > 1
    # A server may choose its model itself.
    has_model = plan.model is not None or settings.policy.kind == "openai"
    greedy = has_model and settings.policy.temperature == 0
    if several and greedy and session.done is None:
        alike = "the candidates of a vote" if votes else "the samples of a task"
        note(f"warning: at temperature 0 {alike} are alike; set --temperature above 0")
    before: EpisodesByTask = {}
    if session.resumed and is_there(plan.episodes):
        before = by_task(read_records(plan.episodes, Episode))
        refuse_other_tasks(plan.episodes, before, plan.panel)
    walked = await walk(
        plan,
        session,
        TreeFile(plan.trees, played=_without_tree(settings, before)),
        title=f"{plan.command} {settings.evaluation.split}",
        ended=session.done if _has_all(plan, session.done, before) else None,
        backend=backend,
    )
    if isinstance(walked, StageRecord):
        return session.nothing_owed(read_json(plan.summary, EvaluationSummary))
    summary, tally = conclude(session, plan.command, plan.k, walked, before)
    for line in tally.warnings(settings):
        note(line)
    for line in overlaps(plan):
        note(line)
    tally.judge_errors(settings, plan.episodes, note)
    return summary


def by_task(rows: Iterable[Episode]) -> EpisodesByTask:
    """The episodes by task."""
    return grouped((row.task, row) for row in rows)


def _without_tree(
    settings: Settings, before: EpisodesByTask
) -> dict[str, FinishedTask]:
    """The tasks that earlier ended without errors, and whose tree was not to stay."""
    finished = {}
    for task, rows in before.items():
        outcomes = [row.outcome for row in rows]
        if len(rows) == settings.rollout.leaves and Outcome.ERRORED not in outcomes:
            success = outcomes.count(Outcome.SUCCESS) / len(rows)
            if not _stays(success, settings):
                # The first sample has the ledger of the whole task.
                ledger = rows[0].ledger or Ledger()
                finished[task] = FinishedTask(ledger, success)
    return finished


def _stays(success: float, settings: Settings) -> bool:
    """Whether a tree with this share of successful leaves stays after the evaluation."""
    wanted = settings.evaluation.trees
    return wanted == "all" or (wanted == "failed" and success < 1)


def _has_all(
    plan: EvaluationPlan, ended: StageRecord | None, rows: EpisodesByTask
) -> bool:
    """Whether the files that are computed from the trees are as the stage left them."""
    if ended is None or not is_there(plan.summary):
        return False
    episodes = sum(ended.counts[outcome] for outcome in Outcome)
    return episodes == sum(map(len, rows.values()))


def overlaps(plan: EvaluationPlan) -> Iterator[str]:
    """Facts about the panel that a reader needs to interpret its success rate."""
    split = plan.settings.environment.split or ""
    yield from training_overlaps(plan.panel, split, plan.world.card, plan.model)
    yield from panel_overlaps(panels_of(plan.run.path))


def conclude(
    session: Session,
    command: str,
    k: int | None,
    walked: PanelWalk,
    before: EpisodesByTask,
) -> tuple[EvaluationSummary, Tally]:
    """Computes the episodes and the summary from the trees, and drops trees.

    before: the episodes of tasks whose tree was dropped earlier. Also returns the
    counts of the trees.
    """
    path, summary_file, trees = session.plan.outputs
    session.start()
    tally, rows = _all_episodes(trees, before, walked.panel)
    with rewriting(path) as writer:
        for row in rows:
            writer.write(row)
    _drop_trees(session, trees)
    summary = _summary(session.settings, command, rows, walked, k)
    values = summary.values()
    write_json(summary_file, values)
    session.finish(
        panel=walked.panel.sha256,
        panel_name=walked.panel.name,
        counts={"tasks": len(walked.panel.tasks), **values["outcomes"]},
        ledger=summary.ledger,
        statistics={"success": values["success"], **walked.extent},
        seconds=walked.seconds,
    )
    return summary, tally


def _all_episodes(
    trees: Path, before: EpisodesByTask, panel: Panel
) -> tuple[Tally, list[Episode]]:
    """The counts of the trees, and all episodes in the order of the panel."""
    tally, rows = counted(trees) if is_there(trees) else (Tally(), list[Episode]())
    # A task that was played again is in both, and its tree is the newer one.
    known = before | by_task(rows)
    ordered = [row for task in panel.tasks for row in known.get(task.id, ())]
    tally.elsewhere = len(ordered) - len(rows)
    return tally, ordered


def _drop_trees(session: Session, trees: Path) -> None:
    """Drops the trees that are not to stay, once their episodes are written."""
    settings = session.settings
    if settings.evaluation.trees == "all" or not is_there(trees):
        return
    left = 0
    with rewriting(trees) as writer:
        for tree in read_records(trees, Tree):
            if _stays(share_of_success(tree), settings):
                writer.write(tree)
                left += 1
    if not left:
        trees.unlink()
        with suppress(OSError):
            # Other evaluations may keep theirs here.
            trees.parent.rmdir()
    drop_unnamed(session.run)


def _summary(
    settings: Settings,
    command: str,
    rows: Sequence[Episode],
    walked: PanelWalk,
    k: int | None,
) -> EvaluationSummary:
    """The summary of an evaluation's episodes."""
    panel = walked.panel
    return EvaluationSummary(
        stage=command,
        split=settings.evaluation.split or "",
        label=settings.evaluation.label or "",
        model=settings.policy.model,
        policy=settings.policy.kind,
        seed=settings.seed,
        samples=settings.rollout.leaves,
        temperature=settings.policy.temperature,
        panel=WalkedPanel(
            name=panel.name,
            tasks=len(panel.tasks),
            sha256=panel.sha256,
        ),
        **msgspec.structs.asdict(summarise(rows)),
        pass_at_k=pass_at_k_summary(rows, k) if k else None,
        ledger=sum((row.ledger for row in rows if row.ledger), Ledger()),
        budget=msgspec.convert(walked.extent.get("budget"), BudgetSpent | None),
        shard=msgspec.convert(walked.extent.get("shard"), ShardExtent | None),
    )
