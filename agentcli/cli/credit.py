"""The commands `agentcli assign-credit` and `agentcli credit ...`."""

from agentcli.cli import completion, options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option, method_option
from agentcli.cli.completion import fixed
from agentcli.cli.method_options import credit_options

GRAPH = file_option(
    "--graph", "Also write the state graphs: GraphML, DOT and JSON.", bool
)
EXPLAIN = method_option(
    "--explain",
    "Account for one advantage instead, and write nothing: best, worst, TASK:STEP or "
    "LINE:STEP of the trees file.",
    metavar="STEP",
    values=fixed("best", "worst"),
)


def assign_credit(call: Call) -> None:
    """Compute the advantage of every step of the trees in RUN.

    Writes RUN/credit/METHOD.jsonl.
    """
    if call.values["explain"] is not None:
        _explain(call)
        return
    from agentcli.stages.credit import perform, plan

    call.carry_out(
        plan(call.settings, call.place.run, graph=call.values["graph"]), perform
    )


def _explain(call: Call) -> None:
    """Prints how the advantage of one step was computed."""
    call.refuse_typed(
        (GRAPH, options.RESUME, options.OVERWRITE),
        "with --explain, which writes nothing; leave one of the two out",
    )
    from agentcli.records.runs import RunDirectory
    from agentcli.stages.trees import count_trees

    settings = call.settings
    trees = RunDirectory(call.place.run).existing_trees()
    if call.dry:
        call.print_plan({"trees": trees}, [], {"trees": count_trees(trees)})
        return
    from agentcli.analysis.explain import explain_step
    from agentcli.reports.explanation import explanation
    from agentcli.reports.output import print_answer

    explained = explain_step(settings, call.place.run, call.values["explain"])
    print_answer(explained, explanation, json=call.values["json"])


ASSIGN = Command(
    name="assign-credit",
    body=assign_credit,
    inherits=True,
    options=(
        options.RUN_ARGUMENT,
        *options.LAYERS,
        options.METHOD.to(
            "credit.method",
            "How steps are credited, however their trees grew: grpo, grpo-prm, rloo, "
            "gigpo, rewardflow, spark, carl, treerl, treerpo, arpo, rlvmr, dpepo, ppo, "
            "rare-tool, or FILE.py:FUNCTION. `--method NAME --help` shows its options.",
            completion.credit_methods,
        ),
        EXPLAIN,
        GRAPH,
        options.RESUME,
        options.OVERWRITE,
        *options.REPORTING,
    ),
    of_methods=credit_options,
    example="agentcli assign-credit runs/x --method rewardflow",
)


METHODS_ARGUMENT = Option(
    "methods",
    "Credit methods, two or more; without any those whose credit RUN holds.",
    list[str],
    values=completion.credit_methods,
)
TOP = method_option(
    "--top", "Steps to list where the methods differ most (10).", int, least=0
)


def compare(call: Call) -> None:
    """Show how far credit methods agree on the trees in RUN.

    A method is read from RUN/credit if that file was computed from these trees;
    otherwise it is computed with its default settings. Nothing is written.
    """
    from agentcli.credit.registry import method_names

    run = call.values["run"]
    methods = list(call.values["methods"] or [])
    # Without RUN the first word is the name of a method.
    if run is not None and not run.is_dir() and str(run) in method_names():
        methods = [str(run), *methods]
        call.values["run"] = None
    top = call.values["top"]
    from agentcli.analysis.compare_credit import MOST, compare_credit
    from agentcli.reports.comparison import agreement_tables
    from agentcli.reports.output import print_answer

    most = MOST if top is None else top
    agreement = compare_credit(call.place.run, methods, call.progress, most)
    print_answer(agreement, agreement_tables, json=call.values["json"])


COMMANDS = (
    Command(
        name="compare",
        body=compare,
        options=(
            options.RUN_ARGUMENT,
            METHODS_ARGUMENT,
            TOP,
            options.JSON,
            options.ONLY_ANSWER,
        ),
        example="agentcli credit compare runs/x grpo rewardflow carl",
    ),
)
