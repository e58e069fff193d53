"""eval, pass-at-k, test-time-branch: a whole panel, every episode exactly once.

All three sample trajectories and reduce them to episodes in evaluation/<label>.jsonl.
The summary next to it (evaluation/<label>.json) contains rates with intervals, the
panel's hash and the ledger.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentcli.environments.protocol import World
from agentcli.environments.registry import settle
from agentcli.errors import UsageError
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.record import BudgetSpent, EvaluationSummary, WalkedPanel
from agentcli.evaluation.summary import pass_at_k_summary, summarise
from agentcli.exploration.settings import VOTING, added_fields, as_method
from agentcli.records.files import read_json, read_records, write_json
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.shards import ShardExtent
from agentcli.records.types import Episode, Ledger, Outcome, StageRecord, Tree
from agentcli.stages import overlap
from agentcli.stages.harvest import TimedTree
from agentcli.stages.ordered import write_in_order
from agentcli.stages.panels import panel_for
from agentcli.stages.plan import with_changes, with_model
from agentcli.stages.sampling import (
    SECTIONS,
    check_sampling,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.session import Session, rewriting
from agentcli.stages.walk import FinishedTask, PanelWalk, WalkPlan, part_to_walk, walk
from agentcli.stages.workplace import Workplace


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan(WalkPlan):
    """An evaluation that is ready to begin."""

    command: str
    """eval, pass-at-k or test-time-branch."""
    k: int | None = None
    """The number of attempts k in pass@k."""

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
    settings = _for_panel(settings, method, settings.evaluation.samples)
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
    settings = _for_panel(settings, settings.rollout.alone, n, prefix="pass-at-k-")
    return _plan("pass-at-k", settings, out, model, k)


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
    samples = settings.evaluation.samples
    settings = _for_panel(settings, VOTING, samples, prefix=f"{VOTING}-")
    return _plan(VOTING, settings, out, model)


def _for_panel(
    settings: Settings,
    method: str,
    samples: int,
    *,
    prefix: str = "",
) -> Settings:
    """Settings whose rollout is the evaluation.

    Without a label, `prefix` and the name of the split are used.
    """
    settings = settle(settings)
    wanted = settings.evaluation
    temperature = wanted.temperature
    if temperature is None:
        temperature = settings.policy.temperature
    of_method = {}
    for field in added_fields(method):
        of_method[field.name] = getattr(wanted, field.name, None)
    rollout = msgspec.structs.replace(
        as_method(settings.rollout, method, **of_method),
        leaves=samples,
        # The samples of an evaluation are independent draws from the policy.
        distinct=0,
        iteration=None,
        budget=wanted.budget,
    )
    label = wanted.label or f"{prefix}{wanted.split}"
    return with_changes(
        msgspec.structs.replace(settings, rollout=rollout),
        environment={"split": wanted.split, "tasks": wanted.tasks},
        policy={"temperature": temperature},
        evaluation={"label": label, "temperature": temperature},
    )


def _plan(
    command: str,
    settings: Settings,
    out: Path,
    model: str | None,
    k: int | None = None,
    world: World | None = None,
) -> EvaluationPlan:
    run = RunDirectory(out)
    label = settings.evaluation.label or ""
    path = run.evaluation(label)
    world = check_sampling(settings, model, world)
    whole = panel_for(world, settings.environment)
    return EvaluationPlan(
        stage=f"evaluation/{label}",
        run=run,
        settings=with_model(settings, model),
        sections=(*SECTIONS, "evaluation"),
        inputs=sampling_inputs(settings, model),
        sources=sampling_sources(settings, model),
        outputs=[path, path.with_suffix(".json"), run.evaluation_trees(label)],
        world=world,
        model=model,
        panel=part_to_walk(settings, whole),
        whole=whole,
        seed=settings.seed,
        command=command,
        k=k,
    )


async def perform(
    plan: EvaluationPlan,
    session: Session,
    workplace: Workplace | None = None,
) -> EvaluationSummary:
    """Writes the episodes and their summary, and returns the summary.

    Raises AgentCliError at the end if too many episodes errored.
    """
    note = session.progress.note
    if plan.command != "eval" and session.done is None:
        counts = plan.counts()
        note(
            f"{counts['episodes']:,} episodes to play, "
            f"{plan.settings.rollout.leaves} of each of {counts['tasks']:,} tasks; "
            "--tasks N takes fewer"
        )
    walked = await walk(
        plan,
        session,
        EpisodeFile(plan),
        title=f"{plan.command} {plan.settings.evaluation.split}",
        ended=session.done if is_there(plan.summary) else None,
        workplace=workplace,
    )
    if isinstance(walked, StageRecord):
        return session.nothing_owed(read_json(plan.summary, EvaluationSummary))
    for line in walked.sampled.warnings(plan.settings):
        note(line)
    summary = conclude(session, plan.episodes, plan.command, plan.k, walked)
    for line in overlaps(plan):
        note(line)
    walked.sampled.judge_errors(plan.settings, plan.episodes, note)
    return summary


def overlaps(plan: EvaluationPlan) -> Iterator[str]:
    """Facts about the panel that a reader needs to interpret its success rate."""
    split = plan.settings.environment.split or ""
    yield from overlap.of_training(plan.panel, split, plan.world.card, plan.model)
    yield from overlap.of_panels(overlap.panels_of(plan.run.path))


def conclude(
    session: Session,
    path: Path,
    command: str,
    k: int | None,
    walked: PanelWalk,
) -> EvaluationSummary:
    """Writes the summary of the episodes in `path`, and the manifest entry."""
    summary = _summary(session.settings, command, path, walked, k)
    values = summary.values()
    write_json(path.with_suffix(".json"), values)
    session.finish(
        panel=walked.panel.sha256,
        panel_name=walked.panel.name,
        counts={"tasks": len(walked.panel.tasks), **values["outcomes"]},
        ledger=summary.ledger,
        statistics={"success": values["success"], **walked.extent},
        seconds=walked.seconds,
    )
    return summary


class EpisodeFile:
    """evaluation/<label>.jsonl and its trees, in the form that `walk` needs."""

    def __init__(self, plan: EvaluationPlan) -> None:
        self.path = plan.episodes
        self._trees = plan.trees
        self._keep = plan.settings.evaluation.trees
        self._tasks = {task.id for task in plan.panel.tasks}
        self._samples = plan.settings.rollout.leaves

    def complete(self) -> dict[str, FinishedTask]:
        """Tasks with all samples, none errored, and their tree if it is kept."""
        trees = self._tasks_with_tree()
        rows_by_task: dict[str, list[Episode]] = {}
        for row in read_records(self.path, Episode):
            rows_by_task.setdefault(row.task, []).append(row)
        kept = {}
        for task, rows in rows_by_task.items():
            outcomes = [row.outcome for row in rows]
            if len(rows) == self._samples and Outcome.ERRORED not in outcomes:
                success = outcomes.count(Outcome.SUCCESS) / len(rows)
                # A task of another panel is kept here: the walk refuses it.
                misses_tree = task in self._tasks and task not in trees
                if self._is_kept(success) and misses_tree:
                    continue
                # The first sample has the ledger of the whole task.
                ledger = rows[0].ledger or Ledger()
                kept[task] = FinishedTask(ledger, success)
        return kept

    def _tasks_with_tree(self) -> set[str]:
        if not is_there(self._trees):
            return set()
        return {tree.task.id for tree in read_records(self._trees, Tree)}

    def keep_only(self, tasks: Collection[str], session: Session) -> None:
        """Drops the episodes of other tasks and a torn last line."""
        rows = [row for row in read_records(self.path, Episode) if row.task in tasks]
        session.start()
        with rewriting(self.path) as writer:
            for row in rows:
                writer.write(row)
        if is_there(self._trees):
            self._keep_trees_of(set(tasks))

    def _keep_trees_of(self, tasks: set[str]) -> None:
        """Drops the trees of other tasks, and a second tree of a task."""
        with rewriting(self._trees) as writer:
            for tree in read_records(self._trees, Tree):
                if tree.task.id in tasks:
                    tasks.remove(tree.task.id)
                    writer.write(tree)

    @contextmanager
    def appending(self, session: Session) -> Iterator[Callable[[TimedTree], None]]:
        """A function that appends a tree's episodes, and the tree itself if it is kept.

        The tree is written last: if a tree exists, so do its episodes.
        """
        with (
            session.appending(self.path) as write,
            session.appending(self._trees) as write_tree,
        ):

            def store(grown: TimedTree) -> None:
                for episode in episodes(grown.tree):
                    write(episode)
                if self._is_kept(grown.success):
                    session.keep_pictures(grown.pictures)
                    write_tree(grown.tree)

            yield store

    def _is_kept(self, success: float) -> bool:
        """Whether a tree is kept; `success` is its share of successful leaves."""
        if self._keep == "failed":
            return success < 1
        return self._keep == "all"

    def put_in_order(self, tasks: Sequence[str]) -> None:
        """Sorts the episodes and the trees by task."""
        write_in_order([self.path], tasks, self.path)
        if is_there(self._trees):
            write_in_order([self._trees], tasks, self._trees)


def _summary(
    settings: Settings,
    command: str,
    path: Path,
    walked: PanelWalk,
    k: int | None,
) -> EvaluationSummary:
    """The summary of an evaluation's episodes."""
    rows = list(read_records(path, Episode))
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
