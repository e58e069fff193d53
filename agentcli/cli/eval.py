"""The command `agentcli eval`."""

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.evaluation import COMMON, SAMPLES, folder


def evaluate(call: Call) -> None:
    """Measure the success rate, with its interval, on a whole panel.

    Plays every episode once. Writes RUN/evaluation/.
    """
    from agentcli.stages.evaluate import perform, plan_evaluation

    model = call.place.model(call.settings)
    plan = plan_evaluation(call.settings, folder(call), model=model)
    call.carry_out(plan, perform)


COMMAND = Command(
    name="eval",
    body=evaluate,
    inherits=True,
    options=(*COMMON, SAMPLES),
    example="agentcli eval runs/x --split L2",
)
