"""The commands `agentcli eval`, `pass-at-k`, `test-time-branch` and `compare`."""

from collections.abc import Callable
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option, method_option
from agentcli.cli.method_options import voting_options
from agentcli.cli.options import JSON, ONLY_ANSWER

if TYPE_CHECKING:
    from agentcli.stages.evaluate import EvaluationPlan

SAMPLES = method_option(
    "--samples", "Episodes per task.", int, path="evaluation.samples"
)
SAMPLED = method_option("--n -n", "Samples per task.", int, path="evaluation.n")
ATTEMPTS = method_option(
    "--k -k", "Attempts allowed; at most n.", int, "K", path="evaluation.k"
)
LABEL = file_option(
    "--label", "Name of the files in evaluation/.", str, "NAME", path="evaluation.label"
)
COMMON = (
    options.RUN_ARGUMENT,
    *options.LAYERS,
    options.ENV,
    options.DATA,
    options.SPLIT.to(
        "evaluation.split",
        "Split (`agentcli env list` explains them); without it the one that the world "
        "is evaluated on.",
    ),
    options.TASKS.to(
        "evaluation.tasks", "Only the first N tasks of what is evaluated."
    ),
    options.PANEL,
    options.WHERE,
    options.SHARD,
    options.MAX_STEPS,
    *(option for option in options.SAMPLING if option is not options.TEMPERATURE),
    options.TEMPERATURE.to(
        "evaluation.temperature",
        "Temperature of the evaluation alone; 0 is greedy. Without it, the policy's.",
    ),
    options.BUDGET.to(
        "evaluation.budget",
        "End the evaluation when this is spent: tokens=N (generated), steps=N, "
        "leaves=N or groups=N.",
    ),
    *options.PACE,
    *options.MACHINES,
    LABEL,
    *options.OUTPUT,
    *options.REPORTING,
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


def _measure(call: Call, plan_of: "Callable[..., EvaluationPlan]") -> None:
    """Carries out the evaluation that `plan_of` plans."""
    from agentcli.stages.evaluate import perform

    model = call.place.model(call.settings)
    call.carry_out(plan_of(call.settings, folder(call), model=model), perform)


def evaluate(call: Call) -> None:
    """Measure the success rate, with its interval, on a whole panel.

    Plays every episode once. Writes RUN/evaluation/.
    """
    from agentcli.stages.evaluate import plan_evaluation

    _measure(call, plan_evaluation)


EVAL = Command(
    name="eval",
    body=evaluate,
    inherits=True,
    options=(*COMMON, SAMPLES),
    example="agentcli eval runs/x --split L2",
)


def pass_at_k(call: Call) -> None:
    """Measure the probability that at least one of k attempts succeeds (pass@k).

    It is estimated from n samples per task. Writes RUN/evaluation/.
    """
    from agentcli.stages.evaluate import plan_pass_at_k

    _measure(call, plan_pass_at_k)


PASS_AT_K = Command(
    name="pass-at-k",
    body=pass_at_k,
    inherits=True,
    options=(*COMMON, SAMPLED, ATTEMPTS),
    example="agentcli pass-at-k runs/x --split L0 -n 32 -k 16",
)


def test_time_branch(call: Call) -> None:
    """Evaluate with a vote at every <explore> of the policy.

    There the next decision is sampled several times, and the vote decides.
    """
    from agentcli.stages.evaluate import plan_test_time_branch

    _measure(call, plan_test_time_branch)


TEST_TIME_BRANCH = Command(
    name="test-time-branch",
    body=test_time_branch,
    inherits=True,
    options=(*COMMON, SAMPLES),
    of_methods=voting_options,
    example="agentcli test-time-branch runs/x --split L2 --branching 4",
)


RUNS_ARGUMENT = Option(
    "runs",
    "Run directories, or evaluation files; the first is the reference. A side of "
    "several seeds is a list with commas, or a pattern in quotes ('runs/a-*').",
    list[Path],
    "RUN...",
)
COMPARED = file_option(
    "--label",
    "Compare these evaluations; repeatable. All that the runs share without it, and "
    "what trees and loops cost.",
    list[str],
    "NAME",
)


def compare(call: Call) -> None:
    """Compare runs on the same tasks.

    Shows success with paired tests against the first run, tokens and steps relative to
    it, repetition and exploration, by kind of task; and the cost of trees, or of whole
    loops. With several runs a side: gains over seeds, paired by the recorded seed, in
    evaluations and in the loops' course.
    """
    from agentcli.analysis import compare as analysis
    from agentcli.records.faults import printable
    from agentcli.reports.comparison import comparison_tables
    from agentcli.reports.output import print_answer

    labels = call.values["label"] or []
    sides = [analysis.read_side(place) for place in call.values["runs"] or []]
    places = [run for side in sides for run in side.runs]
    if len(places) > len(sides):
        # Statistics over seeds take a second to load.
        from agentcli.analysis.sides import compare_sides

        found = compare_sides(sides, labels, call.progress)
        print_answer(found, comparison_tables, json=call.values["json"])
        return
    comparison = analysis.compare(places, labels, call.progress)
    print_answer(comparison, comparison_tables, json=call.values["json"])
    if all(place.is_dir() for place in places) and not call.values["json"]:
        words = ["agentcli", "view", *map(str, places)]
        print(f"\ntask by task, as a page: {printable(join(words))}")


COMPARE = Command(
    name="compare",
    body=compare,
    options=(RUNS_ARGUMENT, COMPARED, JSON, ONLY_ANSWER),
    example=(
        "agentcli compare runs/x/evaluation/L2.json "
        "runs/x/evaluation/test-time-branch-L2.json"
    ),
)
