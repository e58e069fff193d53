"""train: trees and credit in, an updated checkpoint out. Which method gave the credit does not matter here."""

from pathlib import Path

from agentcli.errors import UsageError
from agentcli.records.runs import RunDirectory, link_latest
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages.progress import updates_bar
from agentcli.stages.rollout import with_model
from agentcli.stages.session import Invocation, Session

SECTIONS = ("train", "threads")


def refuse_adapter_beside_model(settings: Settings) -> None:
    """Raises UsageError for policy.adapter, which training would leave out: an adapter is trained as the model itself."""
    if settings.policy.adapter is not None:
        raise UsageError(
            f"policy.adapter {settings.policy.adapter}: training goes on from a model; name the adapter's directory as --model"
        )


def train(
    settings: Settings,
    run: Path,
    out: Path | None,
    invocation: Invocation,
    *,
    model: str,
    latest: bool = True,
) -> StageRecord:
    """Update `model` on the trees and credit of `run`; write checkpoint/, optimizer.safetensors and metrics.jsonl to `out`
    (default: the same run directory).

    The optimiser state beside the starting checkpoint is carried on when `train.carry_optimizer` and there is one; the
    manifest says which happened. Raises UsageError when the output would replace the starting model.
    """
    source, target = RunDirectory(run), RunDirectory(out or run)
    trees, credit = source.existing_trees(), source.existing_credit(settings.train.credit)
    if target.checkpoint.resolve() == Path(model).resolve():
        raise UsageError(f"{target.checkpoint} is the model that training starts from; write elsewhere with -o DIR")
    refuse_adapter_beside_model(settings)
    settings = with_model(settings, model)
    session = Session("train", target, settings, invocation, SECTIONS)
    session.check([target.checkpoint, target.optimizer, target.metrics])
    carried = RunDirectory(Path(model).parent).optimizer
    carry = settings.train.carry_optimizer and carried.is_file()
    if settings.train.carry_optimizer and not carry:
        invocation.progress.note(f"fresh optimiser: no {carried} to carry on")

    from agentcli.stages.threads import use_threads
    from agentcli.training.policy_gradient import train_policy

    use_threads(settings.threads)
    statistics = train_policy(
        trees=trees,
        credit=credit,
        model_dir=model,
        out=target.checkpoint,
        settings=settings.train,
        seed=settings.seed,
        metrics=target.metrics,
        reference=settings.train.reference,
        optimizer_in=carried if carry else None,
        optimizer_out=target.optimizer,
        progress=updates_bar(invocation.progress, "train"),
        ready=session.start,
    )
    inputs = [trees, credit, *([Path(model)] if Path(model).is_dir() else [])]
    record = session.finish(inputs=inputs, statistics={"optimizer_carried": carry, **statistics})
    if latest:
        link_latest(target.path)
    return record
