"""agentcli assign-credit"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import check_credit, count_trees
from agentcli.cli.options import LAYERS, METHOD, OVERWRITE, REPORTING, RUN_ARGUMENT, Option

FORM = Option("form", ("--form",), str, "paper or release, where a method has both.", "credit.form", "Method", "FORM")
GRAPH = Option(
    "graph", ("--graph",), bool, "Also write the state graphs: GraphML, DOT and JSON.", panel="Files and output"
)


def assign_credit(call: Call) -> None:
    """Give every step of the trees in RUN its advantage; writes RUN/credit/METHOD.jsonl."""
    from agentcli.records.runs import RunDirectory

    settings, run = call.settings, call.run
    trees = RunDirectory(run).existing_trees()

    def counts() -> dict[str, int]:
        check_credit(settings)
        return {"trees": count_trees(trees)}

    if call.preview({"trees": trees}, counts):
        return
    from agentcli.stages.credit import assign_credit as stage

    call.finish(stage(settings, run, call.invocation, graph=call.values["graph"]), run)


COMMAND = Command(
    name="assign-credit",
    body=assign_credit,
    argument=RUN_ARGUMENT,
    inherits=True,
    options=(
        *LAYERS,
        METHOD.to("credit.method", "How credit is given: grpo, spark or rewardflow."),
        FORM,
        GRAPH,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli assign-credit --method rewardflow runs/rollout-001",
)
