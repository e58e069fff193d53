"""sft: fine-tunes a model on demonstrations, so that it answers in the right form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from agentcli.environments.protocol import Brief, Naming
from agentcli.environments.registry import make_world
from agentcli.errors import UsageError
from agentcli.policies.load import existing
from agentcli.prompts.protocol import Dialect
from agentcli.prompts.registry import make_dialect
from agentcli.records.processes import process_count
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.training_settings import TINY
from agentcli.records.types import StageRecord
from agentcli.stages.memory import MemoryNeed, fitting_settings, need_of_imitation
from agentcli.stages.plan import (
    StagePlan,
    check_model,
    model_sources,
    template_condition,
    with_adapter,
    with_changes,
)
from agentcli.stages.resolve import find_run
from agentcli.stages.session import Session, updates_bar
from agentcli.stages.trees import checked_trees, count_trees, note_lost_trees
from agentcli.training.objectives import check_sharding


@dataclass(frozen=True, kw_only=True)
class SftPlan(StagePlan):
    """A fine-tuning that is ready to begin."""

    trees: list[Path]
    model: str
    entities: list[str]
    """Words of the world for a tiny model's vocabulary; empty for other models."""
    dialect_of: Callable[[bool], Dialect]
    """The dialect that will read the policy's answers (SampledForm)."""

    def counts(self) -> dict[str, int]:
        """The number of demonstrations in all runs."""
        return {"demonstrations": sum(map(count_trees, self.trees))}

    def need(self, settings: Settings) -> MemoryNeed | None:
        """The memory that it needs with these settings."""
        return need_of_imitation(settings, self.model, self.trees)


def plan(
    settings: Settings,
    runs: Sequence[Path],
    out: Path,
) -> SftPlan:
    """Plans to fine-tune `sft.model` on the trees of all `runs` together.

    Raises what `sources`, `check_sharding`, `make_world` and `check_model` raise.
    """
    directory = RunDirectory(out)
    check_sharding("sft", settings.sft, process_count())
    trees, model = sources(settings, runs, directory)
    check_model(model)
    # The default depends on the model; the manifest shall say which rate was used.
    rate = settings.sft.learning_rate_of(model)
    settings = with_changes(settings, sft={"learning_rate": rate})
    world = make_world(settings.environment)
    settings = with_adapter(settings, "sft", model)
    entities = []
    # Where a world lists no words, those in the trees must suffice.
    if model == TINY and isinstance(world, Brief):
        entities = world.vocabulary()
        if settings.prompt.names == "typed" and isinstance(world, Naming):
            entities = world.placeholders()
    return SftPlan(
        stage="sft",
        run=directory,
        settings=settings,
        sections=("sft", "threads"),
        conditions=template_condition(settings),
        inputs={"demonstrations": ", ".join(map(str, trees)), "model": model},
        sources=[*trees, *model_sources(model)],
        outputs=directory.trained,
        trees=trees,
        model=model,
        entities=entities,
        dialect_of=partial(make_dialect, settings.prompt, world),
    )


def perform(plan: SftPlan, session: Session) -> StageRecord:
    """Writes checkpoint/ and metrics.jsonl.

    Raises DataError for damaged trees, and for a file without trees.
    """
    run = plan.run
    settings = plan.settings
    if session.done and is_there(run.checkpoint):
        run.forget_snapshot()
        return session.nothing_owed(session.done)
    # One tree of each is enough to find a file without trees before a model is loaded.
    for path in plan.trees:
        next(checked_trees(path, "demos"))
        note_lost_trees(path, None, session.progress)
    session.progress.wait("loading model")
    if plan.model != TINY:
        existing(plan.model, "sft.model")
    limit = settings.sft.microbatch_limit
    used = fitting_settings(session, f"sft.{limit}", plan.need, session.progress.note)
    from agentcli.records.free_memory import use_threads
    from agentcli.training.imitation import ImitationTraining
    from agentcli.training.loop.job import Job
    from agentcli.training.loop.trackers import Tracked

    use_threads(settings.threads)
    tracked = None
    if settings.tracking.to:
        tracked = Tracked(
            tracking=settings.tracking,
            name=settings.tracking.name or run.path.resolve().name,
            folder=run.tracking,
            kind="sft",
            settings=msgspec.to_builtins(used.sft),
        )
    job = Job(
        model=plan.model,
        out=run.checkpoint,
        settings=used.sft,
        seed=settings.seed,
        metrics=run.metrics,
        chat_template_kwargs=settings.policy.chat_template_kwargs,
        progress=updates_bar(session.progress, "sft"),
        ready=session.start,
        snapshot=run.snapshot,
        resumes=not session.invocation.overwrite,
        tracked=tracked,
    )
    training = ImitationTraining(job, plan.entities, plan.dialect_of)
    statistics = training.train(plan.trees)
    # The manifest's settings stay as they were asked for; what was used is a fact.
    if used != settings:
        statistics[limit] = getattr(used.sft, limit)
    # Later stages inherit the new model.
    session.settings = with_changes(settings, policy={"model": str(run.checkpoint)})
    record = session.finish(latest=True, statistics=statistics)
    run.forget_snapshot()
    return record


def sources(
    settings: Settings,
    runs: Sequence[Path],
    out: RunDirectory,
) -> tuple[list[Path], str]:
    """The trees file of every run, and the model to start from.

    Raises UsageError if no model is named, if `out` would replace it, and for a run
    named twice; DataError for a run without trees.
    """
    trees = [
        RunDirectory(find_run(run, "demos")).existing_trees("demos") for run in runs
    ]
    if len({path.resolve() for path in trees}) < len(trees):
        raise UsageError(
            f"a run is named twice among {', '.join(map(str, runs))}; name each once"
        )
    model = settings.sft.model
    if model is None:
        raise UsageError(
            "sft.model is not set; name one with --model DIR|ID, or --model tiny to "
            "make one from scratch"
        )
    if out.checkpoint.resolve() == Path(model).resolve():
        raise UsageError(
            f"{out.checkpoint} is the model that sft starts from; write elsewhere "
            "with -o DIR"
        )
    return trees, model
