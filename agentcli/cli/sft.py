"""agentcli sft"""

from pathlib import Path

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
from agentcli.errors import UsageError


def sft(call: Call) -> None:
    """Fine-tune a model on the demonstrations in one RUN or several; `--model tiny` makes one from scratch."""
    from agentcli.records.runs import RunDirectory

    settings, runs = call.settings, [call.run, *(call.values["more"] or [])]
    trees = [RunDirectory(run).existing_trees() for run in runs]
    if settings.sft.model is None:
        raise UsageError("sft.model is not set; name one with --model DIR|ID, or --model tiny to make one from scratch")
    out = RunDirectory(call.new_run())
    if out.checkpoint.resolve() == Path(settings.sft.model).resolve():
        raise UsageError(f"{out.checkpoint} is the model that sft starts from; write elsewhere with -o DIR")
    inputs = {"demonstrations": ", ".join(map(str, trees)), "model": settings.sft.model}
    if call.preview(inputs, lambda: {"demonstrations": sum(map(count_trees, trees))}, out.trained):
        return
    from agentcli.stages.sft import sft as stage

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
