"""rollout: grows one tree per task of the panel.

trees.jsonl contains the trees in panel order; seconds.jsonl records how long each took.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentcli.environments.protocol import World
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.record import ResultsByKind
from agentcli.evaluation.summary import summarise
from agentcli.exploration.budget import highest
from agentcli.policies.load import is_critic
from agentcli.records.files import derive_seed, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import Episode, Panel, StageRecord, Tree
from agentcli.stages.panels import iteration_tasks, make_panel, panel_for
from agentcli.stages.plan import (
    check_critic,
    check_prm,
    model_sources,
    plain,
    with_model,
)
from agentcli.stages.sampling import (
    SECTIONS,
    check_sampling,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.session import Session
from agentcli.stages.tally import UNTRAINED, Tally
from agentcli.stages.walk import PanelWalk, TreeFile, WalkPlan, part_to_walk, walk
from agentcli.stages.workplace import Workplace


@dataclass(frozen=True, kw_only=True)
class RolloutPlan(WalkPlan):
    """A rollout that is ready to begin."""

    def counts(self) -> dict[str, int]:
        """The tasks, and the most leaves and steps that their trees can have."""
        tasks = len(self.panel.tasks)
        return {
            "tasks": tasks,
            "leaves_at_most": tasks * highest("leaves", self.settings),
            "steps_at_most": tasks * highest("steps", self.settings),
        }



def plan(
    settings: Settings,
    out: Path,
    *,
    model: str | None,
    world: World | None = None,
) -> RolloutPlan:
    """Plans a rollout into `out`; `world` is passed if it already exists.

    Raises what `check_sampling` raises, and UsageError and DataError for a panel that
    cannot be played.
    """
    world = check_sampling(settings, model, world)
    critic = settings.rollout.critic
    prm = settings.rollout.prm
    check_critic(critic, "rollout.critic", "--critic DIR")
    check_prm(prm)
    models = {"critic": critic, "prm": prm}
    appraising = {name: each for name, each in models.items() if each is not None}
    whole, seed = tasks_of(settings, world)
    run = RunDirectory(out)
    return RolloutPlan(
        stage="rollout",
        run=run,
        settings=with_model(settings, model),
        sections=SECTIONS,
        inputs={**sampling_inputs(settings, model), **appraising},
        sources=[
            *sampling_sources(settings, model),
            *model_sources(critic),
            *model_sources(prm),
        ],
        outputs=[run.trees, run.seconds],
        world=world,
        model=model,
        critic=critic,
        prm=prm,
        panel=part_to_walk(settings, whole),
        whole=whole,
        seed=seed,
    )


async def perform(
    plan: RolloutPlan,
    session: Session,
    workplace: Workplace | None = None,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """Writes trees.jsonl and seconds.jsonl.

    With `warn`, the rollout is part of a training loop, which trains on everything that
    did not error. Without it, runs/latest is set to this run.
    """
    critic = plan.critic
    if critic is not None and not is_critic(critic):
        session.progress.note(
            f"rollout.critic {critic}: no critic.json there, so its value head is new "
            "and every value is 0"
        )
    walked = await walk(
        plan,
        session,
        TreeFile(plan.run.trees, plan.run.seconds),
        title=f"rollout {plan.settings.rollout.method}",
        ended=session.done,
        workplace=workplace,
    )
    if isinstance(walked, StageRecord):
        return session.nothing_owed(walked)
    return conclude(session, walked, warn)


def conclude(
    session: Session,
    walked: PanelWalk,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """Counts the trees, reports problems, and finishes the stage.

    Raises AgentCliError at the end if too many leaves errored.
    """
    tally, rows = counted(session.run.trees)

    def note(line: str) -> None:
        session.progress.note(line)
        if warn:
            warn(line)

    for line in tally.warnings(session.settings):
        note(line)
    for line in tally.misplaced_forks(session.settings):
        note(line)
    record = session.finish(
        latest=warn is None,
        panel=walked.panel.sha256,
        panel_name=walked.panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={
            **tally.statistics(),
            **walked.extent,
            **tally.temperatures,
            "results": plain(summarise(rows)),
        },
        seconds=walked.seconds,
    )
    remedy = UNTRAINED if warn else None
    tally.judge_errors(session.settings, session.run.path, note, remedy)
    return record


def counted(trees: Path) -> tuple[Tally, list[Episode]]:
    """The counts of a trees file, and its episodes."""
    tally = Tally()
    rows = list[Episode]()
    for tree in read_records(trees, Tree):
        tally.add(tree)
        rows += episodes(tree)
    return tally, rows


def results_of_run(run: RunDirectory) -> ResultsByKind:
    """The results of the rollout in `run`; counted if no rollout wrote its trees."""
    record = run.finished("rollout")
    if record is None:
        return summarise(counted(run.existing_trees())[1])
    return msgspec.convert(record.statistics["results"], ResultsByKind)


def tasks_of(settings: Settings, world: World) -> tuple[Panel, int]:
    """The panel to play, or one iteration's part of it, and the sampling seed."""
    panel = panel_for(world, settings.environment)
    seed = settings.seed
    iteration = settings.rollout.iteration
    if iteration is None:
        return panel, seed
    per_step = settings.rollout.tasks_per_step
    tasks = iteration_tasks(panel.tasks, per_step, iteration, seed)
    part = make_panel(f"{panel.name}/iteration {iteration}", panel.world, tasks)
    return part, derive_seed(seed, "iteration", iteration)
