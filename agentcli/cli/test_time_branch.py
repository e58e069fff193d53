"""The command `agentcli test-time-branch`."""

from agentcli.cli import completion
from agentcli.cli.command import Call, Command
from agentcli.cli.evaluation import COMMON, SAMPLES, folder
from agentcli.cli.options import BRANCHING, RUN_ARGUMENT, Option

VOTE = Option(
    "vote",
    ("--vote",),
    str,
    "action: execute what most responses say. outcome: follow each to its end in a fork, go on as the best.",
    "evaluation.vote",
    "Method",
    "NAME",
    completion.fixed("action", "outcome"),
)
DEPTH = Option(
    "depth", ("--depth",), int, "Most votes in one trajectory; without it no limit.", "evaluation.depth", "Method", "N"
)
VOTE_TOKENS = Option(
    "vote_tokens",
    ("--vote-tokens",),
    int,
    "No further vote once a trajectory has generated so many tokens, its votes included; without it no limit.",
    "evaluation.vote_tokens",
    "Method",
    "N",
)


def test_time_branch(call: Call) -> None:
    """Evaluate with a vote: where the policy says <explore>, sample the next decision several times and go on as the vote says."""
    from agentcli.stages.evaluate import perform, plan_test_time_branch

    model = call.model()
    call.carry_out(plan_test_time_branch(call.settings, folder(call), model=model), perform)


COMMAND = Command(
    name="test-time-branch",
    body=test_time_branch,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(
        *COMMON,
        SAMPLES,
        BRANCHING.to("evaluation.branching", "Decisions sampled where the policy says <explore>."),
        VOTE,
        DEPTH,
        VOTE_TOKENS,
    ),
    example="agentcli test-time-branch runs/x --split L2 --branching 4",
)
