"""train: trees and credit in, an updated checkpoint out. Which method gave the credit matters only where train.aggregate is not
set: then the loss is averaged as that method's paper says. The trainer is told how, and knows no method.

With train.objective dpo the pairs of successes and failures of the trees are learned from instead, and no credit is read.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentcli.credit.registry import known
from agentcli.errors import DataError, UsageError
from agentcli.records.files import read_numbered
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import Credit, StageRecord
from agentcli.stages.progress import updates_bar
from agentcli.stages.rollout import model_inputs, with_model
from agentcli.stages.session import Invocation, Session

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job

SECTIONS = ("train", "threads")


def refuse_adapter_beside_model(settings: Settings) -> None:
    """Raises UsageError for policy.adapter, which training would leave out: an adapter is trained as the model itself."""
    if settings.policy.adapter is not None:
        raise UsageError(
            f"policy.adapter {settings.policy.adapter}: training goes on from a model; name the adapter's directory as --model"
        )


def refuse_greedy(settings: Settings) -> None:
    """Raises UsageError for a loop that samples greedily: its trainer would refuse every step."""
    if settings.policy.temperature == 0 and settings.train.objective == "policy-gradient":
        raise UsageError(
            "policy.temperature: 0: a greedy response has no behaviour policy to take a ratio to; use --temperature above 0"
        )


def with_aggregate(settings: Settings, method: str | None) -> Settings:
    """Settings with the train.aggregate of the credit's `method` where none is set; None: an objective that reads no credit."""
    if method is None or settings.train.aggregate is not None:
        return settings
    chosen = msgspec.structs.replace(settings.train, aggregate=known(method).aggregate)
    return msgspec.structs.replace(settings, train=chosen)


def method_of(credit: Path) -> str:
    """The method that a credit file names. Raises DataError for a file that is empty or damaged."""
    for _, given in read_numbered(credit, Credit):
        return given.method
    raise DataError(f"{credit}: ends after 0 records; run assign-credit again")


def train(
    settings: Settings,
    run: Path,
    out: Path | None,
    invocation: Invocation,
    *,
    model: str,
    latest: bool = True,
    tracking_dir: Path | None = None,
) -> StageRecord:
    """Update `model` on the trees and credit of `run`; write checkpoint/, optimizer.safetensors and metrics.jsonl to `out`
    (default: the same run directory).

    The optimiser state beside the starting checkpoint is carried on when `train.carry_optimizer` and there is one. The statistics
    say whether it was, and which train.aggregate was used; the settings stay as asked for, since later credit may be of another
    method. Raises UsageError when the output would replace the starting model.
    """
    source, target = RunDirectory(run), RunDirectory(out or run)
    trees, credit = source.existing_trees(), None
    if settings.train.objective == "policy-gradient":
        credit = source.existing_credit(settings.train.credit)
    if target.checkpoint.resolve() == Path(model).resolve():
        raise UsageError(f"{target.checkpoint} is the model that training starts from; write elsewhere with -o DIR")
    refuse_adapter_beside_model(settings)
    settings = with_model(settings, model)
    carried = RunDirectory(Path(model).parent).optimizer
    carry = settings.train.carry_optimizer and carried.is_file()
    used = with_aggregate(settings, method_of(credit) if credit else None).train
    inputs = [trees, *([credit] if credit else []), *model_inputs(model), *([carried] if carry else [])]
    more = {"model": model, "aggregate": used.aggregate}
    with Session("train", target, settings, invocation, SECTIONS, inputs=inputs, more=more) as session:
        session.check(target.trained)
        if session.done and target.checkpoint.exists():
            return session.nothing_owed(session.done)
        if settings.train.carry_optimizer and not carry:
            session.progress.note(f"fresh optimiser: no {carried} to carry on")
        from agentcli.stages.threads import use_threads
        from agentcli.training.loop.job import Job

        use_threads(settings.threads)
        job = Job(
            trees=trees,
            model_dir=model,
            out=target.checkpoint,
            settings=used,
            seed=settings.seed,
            metrics=target.metrics,
            reference=settings.train.reference,
            optimizer_in=carried if carry else None,
            optimizer_out=target.optimizer,
            progress=updates_bar(session.progress, "train"),
            ready=session.start,
            snapshot=target.snapshot,
            tracking=settings.tracking,
            run_name=settings.tracking.name or target.path.resolve().name,
            tracking_dir=tracking_dir or target.tracking,
        )
        record = session.finish(latest=latest, statistics={"optimizer_carried": carry, **_update(job, credit)})
        target.forget_snapshot()
    return record


def _update(job: "Job", credit: Path | None) -> dict[str, Any]:
    """The objective's trainer at work: dpo has no credit."""
    if credit is None:
        from agentcli.training.preference.train import train_dpo

        return train_dpo(job)
    from agentcli.training.policy_gradient.train import train_policy

    return {"aggregate": job.settings.aggregate, **train_policy(job, credit)}
