"""The command `agentcli assign-credit`."""

from agentcli.cli import completion
from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    LAYERS,
    METHOD,
    OVERWRITE,
    REPORTING,
    RESUME,
    RUN_ARGUMENT,
    Option,
)
from agentcli.errors import UsageError

FORM = Option(
    "form",
    ("--form",),
    str,
    "paper or release, where a method has both.",
    "credit.form",
    "Method",
    "FORM",
    completion.fixed("paper", "release"),
)
SIMILARITY = Option(
    "similarity",
    ("--similarity",),
    str,
    "Which states are one (gigpo, rewardflow): exact, difflib:0.9 or embedding:0.9.",
    "credit.similarity",
    "Method",
    "RULE",
    completion.fixed("exact", "difflib:0.9", "embedding:0.9"),
)
GRAPH = Option(
    "graph",
    ("--graph",),
    bool,
    "Also write the state graphs: GraphML, DOT and JSON.",
    panel="Files and output",
)
EXPLAIN = Option(
    "explain",
    ("--explain",),
    str,
    "Account for one advantage instead, and write nothing: best, worst, TASK:STEP or "
    "LINE:STEP of the trees file.",
    panel="Method",
    metavar="STEP",
    values=completion.fixed("best", "worst"),
)


def assign_credit(call: Call) -> None:
    """Give every step of the trees in RUN its advantage; writes
    RUN/credit/METHOD.jsonl.
    """
    if call.values["explain"] is not None:
        _explain(call)
        return
    from agentcli.stages.credit import perform, plan

    call.carry_out(plan(call.settings, call.run, graph=call.values["graph"]), perform)


def _explain(call: Call) -> None:
    """Print the account of one step."""
    for name in ("graph", "resume", "overwrite"):
        if call.values[name]:
            raise UsageError(
                f"--{name} has no effect with --explain, which writes nothing; leave "
                "one of the two out"
            )
    from agentcli.records.runs import RunDirectory
    from agentcli.stages.trees import count_trees

    settings, run = call.settings, call.run
    trees = RunDirectory(run).existing_trees()
    if call.dry:
        call.print_plan({"trees": trees}, [], {"trees": count_trees(trees)})
        return
    import msgspec

    from agentcli.analysis.explain import explain_step
    from agentcli.reports.output import print_explanation

    explanation = explain_step(settings, run, call.values["explain"])
    print_explanation(
        msgspec.json.decode(msgspec.json.encode(explanation)), json=call.values["json"]
    )


COMMAND = Command(
    name="assign-credit",
    body=assign_credit,
    arguments=(RUN_ARGUMENT,),
    inherits=True,
    options=(
        *LAYERS,
        METHOD.to(
            "credit.method",
            "How credit is given: grpo, rloo, gigpo, rewardflow, spark, carl, ...",
            completion.credit_methods,
        ),
        FORM,
        SIMILARITY,
        EXPLAIN,
        GRAPH,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli assign-credit runs/x --method rewardflow",
)
