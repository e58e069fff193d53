"""agentcli sft"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import count_trees
from agentcli.cli.options import LAYERS, MODEL, OUT, OVERWRITE, REPORTING, RUN_ARGUMENT, SEED


def sft(call: Call) -> None:
    """Fine-tune a model on the demonstrations in RUN; `--model tiny` makes one from scratch."""
    from agentcli.records.runs import RunDirectory

    settings, run = call.settings, call.run
    trees = RunDirectory(run).existing_trees()
    if call.preview(
        {"demonstrations": trees, "model": settings.sft.model}, lambda: {"demonstrations": count_trees(trees)}
    ):
        return
    out = call.new_run()
    from agentcli.stages.sft import sft as stage

    call.finish(stage(settings, run, out, call.invocation), out)


COMMAND = Command(
    name="sft",
    body=sft,
    argument=RUN_ARGUMENT,
    inherits=True,
    options=(
        *LAYERS,
        MODEL.to("sft.model", "Model directory, hub id, or `tiny` to make one from scratch."),
        SEED,
        OUT,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli sft runs/demos --model tiny -o runs/sft",
)
