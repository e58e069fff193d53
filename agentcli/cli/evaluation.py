"""The options of eval, pass-at-k and test-time-branch, and the folder they write to."""

from pathlib import Path

from agentcli.cli.call import Call
from agentcli.cli.option import file_option, method_option
from agentcli.cli.options import (
    BUDGET,
    DATA,
    ENV,
    LAYERS,
    MACHINES,
    MAX_STEPS,
    OUTPUT,
    PACE,
    PANEL,
    REPORTING,
    RUN_ARGUMENT,
    SAMPLING,
    SHARD,
    SPLIT,
    TASKS,
    TEMPERATURE,
    WHERE,
)

SAMPLES = method_option("--samples", "evaluation.samples", "Episodes per task.", int)
LABEL = file_option(
    "--label", "evaluation.label", "Name of the files in evaluation/.", str, "NAME"
)
COMMON = (
    RUN_ARGUMENT,
    *LAYERS,
    ENV,
    DATA,
    SPLIT.to(
        "evaluation.split",
        "Split (`agentcli env list` explains them); without it the one that the world "
        "is evaluated on.",
    ),
    TASKS.to("evaluation.tasks", "Only the first N tasks of what is evaluated."),
    PANEL,
    WHERE,
    SHARD,
    MAX_STEPS,
    *(option for option in SAMPLING if option is not TEMPERATURE),
    TEMPERATURE.to(
        "evaluation.temperature",
        "Temperature of the evaluation alone; 0 is greedy. Without it, the policy's.",
    ),
    BUDGET.to(
        "evaluation.budget",
        "End the evaluation when this is spent: tokens=N (generated), steps=N, "
        "leaves=N or groups=N.",
    ),
    *PACE,
    *MACHINES,
    LABEL,
    *OUTPUT,
    *REPORTING,
)


def folder(call: Call) -> Path:
    """The output folder: -o, else RUN, else the run of the model, else a new one."""
    from agentcli.policies.registry import LOADING

    policy = call.settings.policy
    if call.values["run"] is not None:
        return call.place.write_to(call.values["run"])
    model_is_of_a_run = policy.kind in LOADING and policy.model is None
    if call.place.source is not None and model_is_of_a_run:
        return call.place.write_to(call.place.source)
    return call.place.new_run()
