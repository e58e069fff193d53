"""The commands `agentcli credit ...`."""

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, method_option
from agentcli.cli.options import JSON, ONLY_ANSWER, RUN_ARGUMENT

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
        options=(RUN_ARGUMENT, METHODS_ARGUMENT, TOP, JSON, ONLY_ANSWER),
        example="agentcli credit compare runs/x grpo rewardflow carl",
    ),
)
