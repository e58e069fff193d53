"""run: the loop rollout -> assign-credit -> train, in one process, one folder per iteration.

Each iteration calls the very stages that the separate commands call, on the same files, so both ways leave the same
trees, credit and checkpoints; only the engine processes are kept alive in between. A killed loop goes on at the stage
that has no manifest entry yet.
"""

import asyncio
import os
from pathlib import Path

import msgspec

from agentcli.credit.registry import make as make_credit
from agentcli.errors import UsageError
from agentcli.records.runs import RunDirectory, link_latest
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages.credit import assign_credit
from agentcli.stages.resources import Engines, open_engines
from agentcli.stages.rollout import roll
from agentcli.stages.session import Invocation, Session
from agentcli.stages.train import refuse_adapter_beside_model, train

SECTIONS = ("environment", "policy", "prompt", "rollout", "credit", "train", "threads")


def run_loop(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> StageRecord:
    """`run.iterations` iterations below `out`; `out`/checkpoint names the last one's.

    Raises UsageError without a model, for existing output without a flag, and when --overwrite would delete the model.
    """
    if model is None:
        raise UsageError("run needs a policy with weights; name one with --model DIR|ID")
    refuse_adapter_beside_model(settings)
    make_credit(settings.credit)
    directory = RunDirectory(out)
    session = Session("run", directory, settings, invocation, SECTIONS)
    existing = [out / "iteration_000", directory.checkpoint]
    if invocation.overwrite:
        existing += sorted(out.glob("iteration_*"))[1:]
    session.check(existing, resumable=True)
    if invocation.overwrite and Path(model).resolve().is_relative_to(out.resolve()):
        raise UsageError(
            f"--overwrite would delete {model}, the model to start from; name another --model, or another -o"
        )
    _try(model)
    session.start()
    history = asyncio.run(_iterate(settings, out, model, invocation))
    link_latest(out)
    record = session.finish(statistics={"success": history}, counts={"iterations": len(history)})
    return record


def _try(model: str) -> None:
    """Raises what loading its tokenizer raises: a wrong --model is told before anything is written."""
    from agentcli.policies.load import load_tokenizer

    load_tokenizer(model)


async def _iterate(settings: Settings, out: Path, model: str, invocation: Invocation) -> list[float]:
    start, history = model, []
    progress = invocation.progress
    progress.start("run", settings.run.iterations)
    async with open_engines(settings) as engines:
        for iteration in range(settings.run.iterations):
            folder = out / f"iteration_{iteration:03d}"
            counts = await _iteration(settings, folder, iteration, engines, model, start, invocation.command)
            model = str(folder / "checkpoint")
            point_to(out / "checkpoint", Path(folder.name) / "checkpoint")
            history.append(round(counts["success"] / max(1, counts["leaves"]), 4))
            progress.advance(1, success=history[-1])
    progress.stop()
    return history


async def _iteration(
    settings: Settings, folder: Path, iteration: int, engines: Engines, model: str, start: str, command: list[str]
) -> dict[str, int]:
    """The three stages of one iteration, each unless it is done; returns the rollout's counts."""
    run, replace = RunDirectory(folder), msgspec.structs.replace
    own = replace(settings, rollout=replace(settings.rollout, iteration=iteration))
    record = run.finished("rollout")
    if record is None:
        record = await roll(own, folder, Invocation(command, resume=run.trees.exists()), engines, model=model)
    again = Invocation(command, overwrite=True)
    name = make_credit(own.credit)[0]
    if run.finished(f"credit/{name}") is None:
        assign_credit(own, folder, again)
    if run.finished("train") is None:
        reference = settings.train.reference or (start if settings.train.beta > 0 else None)
        own = replace(own, train=replace(own.train, credit=name, reference=reference))
        train(own, folder, None, again, model=model, latest=False)
    return record.counts


def point_to(link: Path, target: Path) -> None:
    """Let `link` be a symbolic link to `target` (relative to the link's folder), atomically."""
    temporary = link.with_name(f".{link.name}.part")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    os.replace(temporary, link)
