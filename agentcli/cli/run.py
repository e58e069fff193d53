"""The command `agentcli run`."""

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, method_option, running_option
from agentcli.cli.method_options import growth_options

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


COMMAND = Command(
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
