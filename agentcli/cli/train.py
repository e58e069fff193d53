"""The command `agentcli train`."""

from agentcli.cli import completion
from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    LAYERS,
    MODEL,
    OUT,
    OVERWRITE,
    REPORTING,
    RESUME,
    RUN_ARGUMENT,
    SEED,
    TRACKER,
    Option,
)
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
    "Steps: assigned (those with an advantage), critical (of these, those with a "
    "sibling), all (only children inherit).",
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
    """Update the policy on the trees and credit of RUN; writes RUN/checkpoint, or that
    of -o.
    """
    from agentcli.stages.train import perform, plan

    settings = call.settings
    run = call.run
    model = call.model(updated=False)
    if model is None:
        raise UsageError(
            f"policy.kind is {settings.policy.kind}, which has no weights to train; "
            "name a model with --model DIR|ID"
        )
    update = plan(settings, run, call.write_to(run), model=model)
    call.carry_out(update, perform, update.used)


COMMAND = Command(
    name="train",
    body=train,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(
        *LAYERS,
        MODEL,
        CREDIT,
        UPDATE,
        RECOMPUTE,
        SEED,
        TRACKER,
        OUT,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli train runs/x",
)
