"""The command `agentcli eval`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.evaluation import COMMON, SAMPLES, folder
from agentcli.cli.options import RUN_ARGUMENT


def evaluate(call: Call) -> None:
    """Success rate with its interval on a whole panel, every episode once; writes
    RUN/evaluation/.
    """
    from agentcli.stages.evaluate import perform, plan_evaluation

    model = call.model()
    call.carry_out(plan_evaluation(call.settings, folder(call), model=model), perform)


COMMAND = Command(
    name="eval",
    body=evaluate,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(*COMMON, SAMPLES),
    example="agentcli eval runs/x --split L2",
)
