"""agentcli sft"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import count_trees
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
    """Fine-tune a model on the demonstrations in one RUN or several; `--model tiny` makes one from scratch."""
    from agentcli.records.runs import RunDirectory
    from agentcli.stages.sft import sft as stage
    from agentcli.stages.sft import sources

    settings, runs = call.settings, [call.run, *(call.values["more"] or [])]
    out = RunDirectory(call.new_run())
    trees, model = sources(settings, runs, out)
    inputs = {"demonstrations": ", ".join(map(str, trees)), "model": model}
    if call.preview(inputs, lambda: {"demonstrations": sum(map(count_trees, trees))}, out.trained):
        return
    call.finish(stage(settings, runs, out.path, call.invocation), out.path)


COMMAND = Command(
    name="sft",
    body=sft,
    arguments=(RUN_ARGUMENT, MORE_ARGUMENT),
    inherits=True,
    options=(
        *LAYERS,
        MODEL.to("sft.model", "Model directory, hub id, or `tiny` to make one from scratch."),
        SEED,
        TRACKER,
        OUT,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli sft runs/demos --model tiny -o runs/sft",
)
