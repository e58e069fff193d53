"""The command `agentcli test-time-branch`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.evaluation import COMMON, SAMPLES, folder
from agentcli.cli.options import RUN_ARGUMENT, Option, method_options


def voting_options() -> tuple[Option, ...]:
    """Options for the settings of the vote."""
    from agentcli.exploration.settings import VOTING

    return method_options([VOTING], "evaluation")


def test_time_branch(call: Call) -> None:
    """Evaluate with a vote: where the policy says <explore>, sample the next decision
    several times and go on as the vote says.
    """
    from agentcli.stages.evaluate import perform, plan_test_time_branch

    model = call.model()
    call.carry_out(
        plan_test_time_branch(call.settings, folder(call), model=model), perform
    )


COMMAND = Command(
    name="test-time-branch",
    body=test_time_branch,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(*COMMON, SAMPLES),
    of_methods=voting_options,
    example="agentcli test-time-branch runs/x --split L2 --branching 4",
)
