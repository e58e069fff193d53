"""What eval, pass-at-k and test-time-branch share: their options and the folder they
write to.
"""

from pathlib import Path

from agentcli.cli.command import Call
from agentcli.cli.options import (
    BUDGET,
    DATA,
    ENV,
    LAYERS,
    MAX_STEPS,
    OUT,
    OVERWRITE,
    PACE,
    PANEL,
    REPORTING,
    RESUME,
    SAMPLING,
    SHARD,
    SPLIT,
    TASKS,
    TEMPERATURE,
    WHERE,
    Option,
)

SAMPLES = Option(
    "samples",
    ("--samples",),
    int,
    "Episodes per task.",
    "evaluation.samples",
    "Method",
    "N",
)
LABEL = Option(
    "label",
    ("--label",),
    str,
    "Name of the files in evaluation/.",
    "evaluation.label",
    "Files and output",
    "NAME",
)
COMMON = (
    *LAYERS,
    ENV,
    DATA,
    SPLIT.to(
        "evaluation.split", "Split; without it the one that the world is evaluated on."
    ),
    TASKS.to("evaluation.tasks"),
    PANEL,
    WHERE,
    SHARD,
    MAX_STEPS,
    *(
        option.to("evaluation.temperature") if option is TEMPERATURE else option
        for option in SAMPLING
    ),
    BUDGET.to("evaluation.budget"),
    *PACE,
    LABEL,
    OUT,
    RESUME,
    OVERWRITE,
    *REPORTING,
)


def folder(call: Call) -> Path:
    """-o; else RUN; else the run that the model comes from; else a new one."""
    named, policy = call.values["run"], call.settings.policy
    if named is not None:
        return call.write_to(named)
    if (
        call.source is not None
        and policy.model is None
        and policy.kind == "transformers"
    ):
        return call.write_to(call.source)
    return call.new_run()
