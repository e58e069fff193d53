"""The command `agentcli pass-at-k`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.evaluation import COMMON, folder
from agentcli.cli.options import RUN_ARGUMENT, Option

SAMPLED = Option(
    "n", ("--n", "-n"), int, "Samples per task.", "evaluation.n", "Method", "N"
)
ATTEMPTS = Option(
    "k",
    ("--k", "-k"),
    int,
    "Attempts allowed; at most n.",
    "evaluation.k",
    "Method",
    "K",
)


def pass_at_k(call: Call) -> None:
    """Chance that one of k attempts succeeds, from n samples per task; writes
    RUN/evaluation/.
    """
    from agentcli.stages.evaluate import perform, plan_pass_at_k

    model = call.model()
    call.carry_out(plan_pass_at_k(call.settings, folder(call), model=model), perform)


COMMAND = Command(
    name="pass-at-k",
    body=pass_at_k,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(*COMMON, SAMPLED, ATTEMPTS),
    example="agentcli pass-at-k runs/x --split L0 -n 32 -k 16",
)
