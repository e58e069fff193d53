"""The command `agentcli train`."""

from agentcli.cli import completion, options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, method_option
from agentcli.cli.completion import fixed
from agentcli.errors import UsageError

CREDIT = method_option(
    "--credit",
    "Which credit file, where RUN holds several.",
    metavar="NAME",
    values=completion.credit_files,
    path="train.credit",
)
UPDATE = method_option(
    "--update",
    "Steps: assigned (those with an advantage), critical (of these, those with a "
    "sibling), forked (critical; in the first trajectories, where forked later), "
    "all (a step without siblings takes the advantage of the step before).",
    metavar="WHICH",
    values=fixed("assigned", "critical", "forked", "all"),
    path="train.update",
)
RECOMPUTE = method_option(
    "--recompute-logprobs/--no-recompute-logprobs",
    "Replace the rollout's log-probabilities by the trainer's own.",
    bool,
    path="train.recompute_logprobs",
)


def train(call: Call) -> None:
    """Update the policy on the trees and credit of RUN.

    Writes RUN/checkpoint, or DIR/checkpoint with -o DIR.
    """
    from agentcli.stages.train import perform, plan

    settings = call.settings
    run = call.place.run
    model = call.place.model(settings, updated=False)
    if model is None:
        raise UsageError(
            f"policy.kind is {settings.policy.kind}, which has no weights to train; "
            "name a model with --model DIR|ID"
        )
    update = plan(settings, run, call.place.write_to(run), model=model)
    call.carry_out(update, perform, update.used)


COMMAND = Command(
    name="train",
    body=train,
    inherits=True,
    options=(
        options.RUN_ARGUMENT,
        *options.LAYERS,
        options.MODEL,
        CREDIT,
        UPDATE,
        RECOMPUTE,
        options.LEARNING_RATE,
        options.LORA,
        options.SEED,
        options.TRACKER,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    example="agentcli train runs/x",
)
