"""The commands `agentcli sft`, `train` and `run`: what changes a policy."""

from pathlib import Path

from agentcli.cli import completion, options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, method_option, running_option
from agentcli.cli.completion import fixed
from agentcli.cli.method_options import growth_options
from agentcli.errors import UsageError

MORE_ARGUMENT = Option(
    "more",
    "Further runs, learned together with RUN; the settings are RUN's.",
    list[Path],
    "RUN...",
)

UPDATES = method_option(
    "--updates",
    "Updates of the optimiser; else sft.epochs passes.",
    int,
    path="sft.updates",
)


def sft(call: Call) -> None:
    """Fine-tune a model on the demonstrations in one or more RUNs.

    `--model tiny` creates a small model from scratch.
    """
    from agentcli.stages.sft import perform, plan

    runs = [call.place.run, *(call.values["more"] or [])]
    call.carry_out(plan(call.settings, runs, call.place.new_run()), perform)


SFT = Command(
    name="sft",
    body=sft,
    inherits=True,
    maker="demos",
    options=(
        options.RUN_ARGUMENT,
        MORE_ARGUMENT,
        *options.LAYERS,
        options.MODEL.to(
            "sft.model", "Model directory, hub id, or `tiny` to make one from scratch."
        ),
        UPDATES,
        options.LEARNING_RATE.to("sft.learning_rate"),
        options.LORA.to("sft.lora.rank"),
        options.SEED,
        options.TRACKER,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    example="agentcli sft runs/demos --model tiny -o runs/sft",
)


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


TRAIN = Command(
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


ITERATIONS = method_option(
    "--iterations", "Times round the loop.", int, "K", path="run.iterations"
)

TASKS_PER_ITERATION = method_option(
    "--tasks-per-iteration",
    "Tasks of one iteration.",
    int,
    path="rollout.tasks_per_step",
)
EVALUATE_EVERY = running_option(
    "--evaluate-every",
    "Evaluate the policy after every N-th iteration and the last, and keep the best.",
    int,
    path="run.evaluate_every",
)
KEEP = running_option(
    "--keep", "Keep the weights of the newest N iterations.", int, path="run.keep"
)


def run(call: Call) -> None:
    """Repeat rollout, assign-credit and train, with one folder per iteration.

    The preset sets method and world.
    """
    from agentcli.stages.loop import perform, plan
    from agentcli.training.objectives import make_objective

    objective = call.settings.train.objective
    if not make_objective(objective).reads_credit:
        call.refuse_typed(
            (options.CREDIT_METHOD,),
            f"with train.objective {objective}, which reads no credit; leave it out",
        )
    loop = plan(
        call.settings, call.place.new_run(), model=call.place.model(call.settings)
    )
    call.note(call.settings.rollout.remark)
    call.carry_out(loop, perform, loop.used)


RUN = Command(
    name="run",
    body=run,
    inherits=True,
    fresh=True,
    options=(
        options.METHOD,
        options.CREDIT_METHOD,
        ITERATIONS,
        TASKS_PER_ITERATION,
        options.LEARNING_RATE,
        options.LORA,
        *options.WORLD,
        *options.SAMPLING,
        *options.GROWTH,
        options.PRM,
        *options.LAYERS,
        *options.PACE,
        *options.MACHINES,
        EVALUATE_EVERY,
        KEEP,
        options.TRACKER,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    of_methods=growth_options,
    example="agentcli run --preset quickstart --model runs/sft/checkpoint -o runs/rl",
)
