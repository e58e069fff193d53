"""run: the loop rollout -> assign-credit -> train, in one process, one folder per iteration.

Each iteration calls the very stages that the separate commands call, on the same files, so both ways leave the same
trees, credit and checkpoints; only the engine processes are kept alive in between. A killed loop goes on at the stage
that has no manifest entry yet.
"""

import asyncio
import os
from pathlib import Path

import msgspec

from agentcli.credit.registry import known
from agentcli.credit.registry import make as make_credit
from agentcli.errors import UsageError
from agentcli.exploration.registry import FORKING
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages.credit import assign_credit
from agentcli.stages.resources import Engines, open_engines
from agentcli.stages.rollout import roll, sampling_inputs
from agentcli.stages.session import Invocation, Session
from agentcli.stages.train import refuse_adapter_beside_model, refuse_greedy, train, with_aggregate

SECTIONS = ("environment", "policy", "prompt", "rollout", "credit", "train", "threads")


def run_loop(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> StageRecord:
    """`run.iterations` iterations below `out`; `out`/checkpoint names the last one's.

    Raises UsageError without a model, for existing output without a flag, and when --overwrite would delete the model.
    """
    if model is None or settings.policy.kind == "openai":
        raise UsageError(
            f"run trains a policy that it loads itself, not {settings.policy.kind}; name one with --model DIR|ID"
        )
    refuse_adapter_beside_model(settings)
    refuse_greedy(settings)
    used = with_aggregate(settings, credit_of(settings)).train.aggregate
    _try(model)
    with Session(
        "run", RunDirectory(out), settings, invocation, SECTIONS, inputs=sampling_inputs(settings, model)
    ) as session:
        existing = [out / "iteration_000", session.run.checkpoint, session.run.tracking]
        if invocation.overwrite:
            existing += sorted(out.glob("iteration_*"))[1:]
        session.check(existing)
        folders = [iteration_folder(out, number) for number in range(settings.run.iterations)]
        if session.done and all(_finished(RunDirectory(folder), "train", "checkpoint") for folder in folders):
            return session.nothing_owed(session.done)
        if invocation.overwrite and Path(model).resolve().is_relative_to(out.resolve()):
            raise UsageError(
                f"--overwrite would delete {model}, the model to start from; name another --model, or another -o"
            )
        session.start()
        if used != settings.train.aggregate:
            session.progress.note(
                f"train.aggregate: {used}, which credit.method {settings.credit['method']} comes with"
            )
        history = asyncio.run(_iterate(session, model))
        statistics = {"success": history, **({"aggregate": used} if used else {})}
        return session.finish(latest=True, statistics=statistics, counts={"iterations": len(history)})


def credit_of(settings: Settings) -> str | None:
    """The credit method of every iteration, None where the objective reads no credit. Raises UsageError for a method or switch that
    there is not, and for a method that needs what no rollout writes."""
    name, _, own = make_credit(settings.credit)
    if settings.train.objective != "policy-gradient":
        return None
    if known(name).needs_values:
        raise UsageError(
            f"credit.method {name}: needs a critic's value of every step, and no policy stores one yet; choose a method without "
            "a critic, for instance --set credit.method=grpo"
        )
    if getattr(own, "first_phase", "all") != "all" and settings.rollout.method not in FORKING:
        raise UsageError(
            f"credit.first_phase: trees of rollout.method {settings.rollout.method} have no first phase; sample with "
            f"{', '.join(FORKING)}, or take --set credit.first_phase=all"
        )
    return name


def _try(model: str) -> None:
    """Raises what loading its tokenizer raises, and DataError for weights that are not whole: a wrong --model is told before
    anything is written."""
    from agentcli.policies.load import check_weights, load_tokenizer

    load_tokenizer(model)
    check_weights(model)


async def _iterate(session: Session, model: str) -> list[float]:
    settings, out, progress = session.settings, session.run.path, session.progress
    start, history = model, list[float]()
    progress.start("run", settings.run.iterations)
    async with open_engines(settings) as engines:
        for iteration in range(settings.run.iterations):
            folder = iteration_folder(out, iteration)
            counts = await _iteration(session, folder, iteration, engines, model, start)
            model = str(folder / "checkpoint")
            point_to(out / "checkpoint", Path(folder.name) / "checkpoint")
            history.append(round(counts.get("success", 0) / max(1, counts.get("leaves", 0)), 4))
            progress.advance(1, success=history[-1])
    progress.stop()
    return history


async def _iteration(
    session: Session, folder: Path, iteration: int, engines: Engines, model: str, start: str
) -> dict[str, int]:
    """The stages of one iteration, each unless it is done; returns the rollout's counts.

    The policy gradient's KL is against the loop's start; DPO needs no credit and its reference is the iteration's start.
    """
    settings, run, replace = session.settings, RunDirectory(folder), msgspec.structs.replace
    own = replace(settings, rollout=replace(settings.rollout, iteration=iteration))
    invocation = Invocation(session.invocation.command, resume=True)
    record = _finished(run, "rollout", "trees.jsonl")
    if record is None:

        def warn(text: str) -> None:
            session.progress.note(f"{folder.name}: {text}")

        record = await roll(own, folder, invocation, engines, model=model, warn=warn)
    name = credit_of(own)
    if name is not None and not _finished(run, f"credit/{name}", f"credit/{name}.jsonl"):
        assign_credit(own, folder, invocation)
    if not _finished(run, "train", "checkpoint"):
        anchored = name is not None and settings.train.beta > 0
        reference = settings.train.reference or (start if anchored else None)
        tracking = replace(settings.tracking, name=settings.tracking.name or session.run.path.resolve().name)
        own = replace(own, train=replace(own.train, credit=name, reference=reference), tracking=tracking)
        train(own, folder, None, invocation, model=model, latest=False, tracking_dir=session.run.tracking)
    return record.counts


def iteration_folder(out: Path, iteration: int) -> Path:
    """The run directory of one iteration."""
    return out / f"iteration_{iteration:03d}"


def _finished(run: RunDirectory, stage: str, output: str) -> StageRecord | None:
    """The manifest entry of a stage that ended, as long as what it wrote is still there."""
    return run.finished(stage) if (run.path / output).exists() else None


def point_to(link: Path, target: Path) -> None:
    """Let `link` be a symbolic link to `target` (relative to the link's folder), atomically."""
    temporary = link.with_name(f".{link.name}.part")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    os.replace(temporary, link)
