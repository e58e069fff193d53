"""The command `agentcli test-time-branch`."""

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.evaluation import COMMON, SAMPLES, folder
from agentcli.cli.method_options import voting_options


def test_time_branch(call: Call) -> None:
    """Evaluate with a vote at every <explore> of the policy.

    There the next decision is sampled several times, and the vote decides.
    """
    from agentcli.stages.evaluate import perform, plan_test_time_branch

    model = call.place.model(call.settings)
    plan = plan_test_time_branch(call.settings, folder(call), model=model)
    call.carry_out(plan, perform)


COMMAND = Command(
    name="test-time-branch",
    body=test_time_branch,
    inherits=True,
    options=(*COMMON, SAMPLES),
    of_methods=voting_options,
    example="agentcli test-time-branch runs/x --split L2 --branching 4",
)
