"""agentcli train"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import count_trees
from agentcli.cli.options import LAYERS, MODEL, OUT, OVERWRITE, REPORTING, RUN_ARGUMENT, SEED, Option
from agentcli.errors import UsageError

CREDIT = Option(
    "credit", ("--credit",), str, "Which credit file, where RUN holds several.", "train.credit", "Method", "NAME"
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

    settings, run = call.settings, call.run
    directory = RunDirectory(run)
    trees, credit = directory.existing_trees(), directory.existing_credit(settings.train.credit)
    model = call.model(updated=False)
    if model is None:
        raise UsageError(
            f"policy.kind is {settings.policy.kind}, which has no weights to train; name a model with --model DIR|ID"
        )
    if call.preview({"trees": trees, "credit": credit, "model": model}, lambda: {"trees": count_trees(trees)}):
        return
    out = call.write_to(run)
    from agentcli.stages.train import train as stage

    call.finish(stage(settings, run, out, call.invocation, model=model), out)


COMMAND = Command(
    name="train",
    body=train,
    argument=RUN_ARGUMENT,
    inherits=True,
    options=(*LAYERS, MODEL, CREDIT, RECOMPUTE, SEED, OUT, OVERWRITE, *REPORTING),
    example="agentcli train runs/rollout-001 --credit rewardflow",
)
