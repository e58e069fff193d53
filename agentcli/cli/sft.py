"""The command `agentcli sft`."""

from pathlib import Path

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option, method_option
from agentcli.cli.options import (
    LAYERS,
    LEARNING_RATE,
    LORA,
    MODEL,
    OUTPUT,
    REPORTING,
    RUN_ARGUMENT,
    SEED,
    TRACKER,
)

MORE_ARGUMENT = Option(
    "more",
    None,
    "Further runs, learned together with RUN; the settings are RUN's.",
    list[Path],
    "RUN...",
)

UPDATES = method_option(
    "--updates", "sft.updates", "Updates of the optimiser; else sft.epochs passes.", int
)


def sft(call: Call) -> None:
    """Fine-tune a model on the demonstrations in one or more RUNs.

    `--model tiny` creates a small model from scratch.
    """
    from agentcli.stages.sft import perform, plan

    runs = [call.place.run, *(call.values["more"] or [])]
    call.carry_out(plan(call.settings, runs, call.place.new_run()), perform)


COMMAND = Command(
    name="sft",
    body=sft,
    inherits=True,
    maker="demos",
    options=(
        RUN_ARGUMENT,
        MORE_ARGUMENT,
        *LAYERS,
        MODEL.to(
            "sft.model", "Model directory, hub id, or `tiny` to make one from scratch."
        ),
        UPDATES,
        LEARNING_RATE.to("sft.learning_rate"),
        LORA.to("sft.lora.rank"),
        SEED,
        TRACKER,
        *OUTPUT,
        *REPORTING,
    ),
    example="agentcli sft runs/demos --model tiny -o runs/sft",
)
