"""The command `agentcli sft`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    LAYERS,
    MODEL,
    MORE_ARGUMENT,
    OUT,
    OVERWRITE,
    REPORTING,
    RESUME,
    RUN_ARGUMENT,
    SEED,
    TRACKER,
)


def sft(call: Call) -> None:
    """Fine-tune a model on the demonstrations in one RUN or several; `--model tiny`
    makes one from scratch.
    """
    from agentcli.stages.sft import perform, plan

    runs = [call.run, *(call.values["more"] or [])]
    call.carry_out(plan(call.settings, runs, call.new_run()), perform)


COMMAND = Command(
    name="sft",
    body=sft,
    arguments=(RUN_ARGUMENT, MORE_ARGUMENT),
    inherits=True,
    options=(
        *LAYERS,
        MODEL.to(
            "sft.model", "Model directory, hub id, or `tiny` to make one from scratch."
        ),
        SEED,
        TRACKER,
        OUT,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli sft runs/demos --model tiny -o runs/sft",
)
