"""agentcli train"""

from pathlib import Path

from agentcli.cli import completion
from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import count_trees
from agentcli.cli.options import LAYERS, MODEL, OUT, OVERWRITE, REPORTING, RESUME, RUN_ARGUMENT, SEED, TRACKER, Option
from agentcli.errors import UsageError

CREDIT = Option(
    "credit",
    ("--credit",),
    str,
    "Which credit file, where RUN holds several.",
    "train.credit",
    "Method",
    "NAME",
    completion.credit_files,
)
UPDATE = Option(
    "update",
    ("--update",),
    str,
    "Steps: assigned (those with an advantage), critical (of these, those with a sibling), all (only children inherit).",
    "train.update",
    "Method",
    "WHICH",
    completion.fixed("assigned", "critical", "all"),
)
RECOMPUTE = Option(
    "recompute_logprobs",
    ("--recompute-logprobs/--no-recompute-logprobs",),
    bool,
    "Replace the rollout's log-probabilities by the trainer's own.",
    "train.recompute_logprobs",
    "Method",
)


def train(call: Call) -> None:
    """Update the policy on the trees and credit of RUN; writes RUN/checkpoint, or that of -o."""
    from agentcli.records.runs import RunDirectory
    from agentcli.stages.train import method_of, refuse_adapter_beside_model, with_aggregate

    settings, run = call.settings, call.run
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    credit = directory.existing_credit(settings.train.credit) if settings.train.objective == "policy-gradient" else None
    model = call.model(updated=False)
    if model is None:
        raise UsageError(
            f"policy.kind is {settings.policy.kind}, which has no weights to train; name a model with --model DIR|ID"
        )
    out = call.write_to(run)
    target = RunDirectory(out)
    if target.checkpoint.resolve() == Path(model).resolve():
        raise UsageError(f"{target.checkpoint} is the model that training starts from; write elsewhere with -o DIR")
    refuse_adapter_beside_model(settings)
    inputs = {"trees": trees, "credit": credit, "model": model}
    if call.preview(
        inputs,
        lambda: {"trees": count_trees(trees)},
        target.trained,
        lambda: with_aggregate(settings, method_of(credit) if credit else None),
    ):
        return
    from agentcli.stages.train import train as stage

    call.finish(stage(settings, run, out, call.invocation, model=model), out)


COMMAND = Command(
    name="train",
    body=train,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(*LAYERS, MODEL, CREDIT, UPDATE, RECOMPUTE, SEED, TRACKER, OUT, RESUME, OVERWRITE, *REPORTING),
    example="agentcli train runs/x",
)
