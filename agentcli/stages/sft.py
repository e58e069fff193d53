"""sft: demonstrations in, a checkpoint that answers in the right form out."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentcli.environments.registry import make_world
from agentcli.errors import DataError, UsageError
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord, Tree
from agentcli.stages.progress import updates_bar
from agentcli.stages.resolve import find_run
from agentcli.stages.rollout import model_inputs
from agentcli.stages.session import Invocation, Session

SECTIONS = ("sft", "threads")


def sft(settings: Settings, runs: Sequence[Path], out: Path, invocation: Invocation) -> StageRecord:
    """Fine-tune `sft.model` on the trees of all `runs` together and write `out`/checkpoint. Raises what `sources` raises."""
    directory = RunDirectory(out)
    trees, model = sources(settings, runs, directory)
    inputs = [*trees, *model_inputs(model)]
    with Session("sft", directory, settings, invocation, SECTIONS, inputs=inputs) as session:
        session.check(directory.trained)
        if session.done and directory.checkpoint.exists():
            return session.nothing_owed(session.done)
        for path in trees:
            if next(read_records(path, Tree), None) is None:
                raise DataError(f"{path}: holds no trees; write some with: agentcli demos --resume -o {path.parent}")
        entities = make_world(settings.environment).vocabulary() if model == "tiny" else []

        from agentcli.stages.threads import use_threads
        from agentcli.training.imitation.train import run_sft

        use_threads(settings.threads)
        statistics = run_sft(
            trees=trees,
            out=directory.checkpoint,
            settings=settings.sft,
            seed=settings.seed,
            metrics=directory.metrics,
            entities=entities,
            progress=updates_bar(session.progress, "sft"),
            ready=session.start,
            snapshot=directory.snapshot,
            tracking=settings.tracking,
            tracking_dir=directory.tracking,
            run_name=settings.tracking.name or directory.path.resolve().name,
        )
        inherited = msgspec.structs.replace(settings.policy, model=str(directory.checkpoint))
        session.settings = msgspec.structs.replace(settings, policy=inherited)
        record = session.finish(latest=True, statistics=statistics)
        directory.forget_snapshot()
    return record


def sources(settings: Settings, runs: Sequence[Path], out: RunDirectory) -> tuple[list[Path], str]:
    """The trees file of every run, and the model to start from.

    Raises UsageError when no model is named, when `out` would replace it, and for a run named twice; DataError for a run without
    trees.
    """
    trees = [RunDirectory(find_run(run)).existing_trees() for run in runs]
    if len({path.resolve() for path in trees}) < len(trees):
        raise UsageError(f"a run is named twice among {', '.join(map(str, runs))}; name each once")
    model = settings.sft.model
    if model is None:
        raise UsageError("sft.model is not set; name one with --model DIR|ID, or --model tiny to make one from scratch")
    if out.checkpoint.resolve() == Path(model).resolve():
        raise UsageError(f"{out.checkpoint} is the model that sft starts from; write elsewhere with -o DIR")
    return trees, model
