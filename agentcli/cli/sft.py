"""The command `agentcli sft`."""

from pathlib import Path

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, method_option

MORE_ARGUMENT = Option(
    "more",
    "Further runs, learned together with RUN; the settings are RUN's.",
    list[Path],
    "RUN...",
)

UPDATES = method_option(
    "--updates",
    "Updates of the optimiser; else sft.epochs passes.",
    int,
    path="sft.updates",
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
        options.RUN_ARGUMENT,
        MORE_ARGUMENT,
        *options.LAYERS,
        options.MODEL.to(
            "sft.model", "Model directory, hub id, or `tiny` to make one from scratch."
        ),
        UPDATES,
        options.LEARNING_RATE.to("sft.learning_rate"),
        options.LORA.to("sft.lora.rank"),
        options.SEED,
        options.TRACKER,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    example="agentcli sft runs/demos --model tiny -o runs/sft",
)
