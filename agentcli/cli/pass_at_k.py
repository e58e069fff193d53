"""The command `agentcli pass-at-k`."""

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.evaluation import COMMON, folder
from agentcli.cli.option import method_option

SAMPLED = method_option("--n -n", "evaluation.n", "Samples per task.", int)
ATTEMPTS = method_option(
    "--k -k", "evaluation.k", "Attempts allowed; at most n.", int, "K"
)


def pass_at_k(call: Call) -> None:
    """Measure the probability that at least one of k attempts succeeds (pass@k).

    It is estimated from n samples per task. Writes RUN/evaluation/.
    """
    from agentcli.stages.evaluate import perform, plan_pass_at_k

    model = call.place.model(call.settings)
    plan = plan_pass_at_k(call.settings, folder(call), model=model)
    call.carry_out(plan, perform)


COMMAND = Command(
    name="pass-at-k",
    body=pass_at_k,
    inherits=True,
    options=(*COMMON, SAMPLED, ATTEMPTS),
    example="agentcli pass-at-k runs/x --split L0 -n 32 -k 16",
)
