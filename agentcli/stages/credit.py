"""assign-credit: reads trees and writes one line of credit per tree.

It is a pure function of the trees; it uses no environment and no policy.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.registry import Assign, known, make, method_names
from agentcli.credit.similarity import check_embedding_model
from agentcli.credit.statistics import CreditStatistics, graph_sizes
from agentcli.errors import DataError, UsageError, prefixed, word_of
from agentcli.exploration.settings import RootedRollout, methods_with
from agentcli.records.checksums import lost_its_end
from agentcli.records.files import read_numbered, read_records, rewriting
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name, open_hashed
from agentcli.records.settings import Settings
from agentcli.records.types import Credit, StageRecord, Tree
from agentcli.registry import own_files
from agentcli.reports.standing import Standing
from agentcli.stages.plan import StagePlan
from agentcli.stages.session import Session
from agentcli.stages.trees import checked_trees, count_trees, note_lost_trees
from agentcli.training.objectives import CriticOptions, make_objective, options_of


@dataclass(frozen=True, kw_only=True)
class CreditPlan(StagePlan):
    """A credit assignment that is ready to begin."""

    trees: Path
    method: str
    assign: Assign
    switches: msgspec.Struct
    """The method's own settings."""
    graph: bool

    def counts(self) -> dict[str, int]:
        """The number of trees in the run."""
        return {"trees": count_trees(self.trees)}


def plan(settings: Settings, run: Path, *, graph: bool = False) -> CreditPlan:
    """Plans credit for the trees of `run`; with `graph`, also their state graphs.

    The graph is the one whose values rewardflow used, or for another method the one
    that rewardflow would use by default; its actions have the method's advantages.
    Raises DataError without trees, UsageError for settings that the method does not
    have.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    method, assign, switches = make(settings.credit)
    if credit_name(method) != method and credit_name(method) in method_names():
        raise UsageError(
            f"credit.method {method}: {credit_name(method)} is another method's name, "
            "and its file's; rename the function"
        )
    check_embedding_model(switches)
    # The manifest records every setting, including defaults.
    credit = {"method": method, **msgspec.to_builtins(switches)}
    outputs = [directory.credit(method)]
    if graph:
        outputs.append(run / "graphs")
    return CreditPlan(
        stage=f"credit/{credit_name(method)}",
        run=directory,
        settings=msgspec.structs.replace(settings, credit=credit),
        sections=("credit",),
        inputs={"trees": trees},
        sources=[trees, *own_files(method)],
        outputs=outputs,
        trees=trees,
        method=method,
        assign=assign,
        switches=switches,
        graph=graph,
    )


def perform(plan: CreditPlan, session: Session) -> StageRecord:
    """Writes credit/<method>.jsonl next to the trees, and the graphs into graphs/.

    Raises DataError for damaged trees.
    """
    trees = plan.trees
    progress = session.progress
    # Graphs may be another method's: their folder has one name.
    is_written = all(map(is_there, plan.outputs)) and not plan.graph
    if session.done and is_written and not lost_its_end(plan.run.credit(plan.method)):
        return session.nothing_owed(session.done)
    statistics = CreditStatistics(getattr(plan.switches, "outcome", "success"))
    progress.start(Standing(f"credit {plan.method}", None))
    with rewriting(plan.run.credit(plan.method)) as writer:
        for line, tree in checked_trees(trees, file=open_hashed(trees)):
            with prefixed(f"{trees}:{line}", DataError):
                credit = plan.assign(tree, plan.switches)
                statistics.add(tree, credit)
            writer.write(credit)
            progress.advance()
        # Replace the earlier output only now, when every tree has its credit.
        session.start()
    progress.stop()
    for warning in statistics.warnings:
        progress.note(f"warning: {warning}")
    summary = statistics.summary()
    note_lost_trees(trees, summary["trees"], progress)
    name = credit_name(plan.method)
    if name != plan.method:
        run = plan.run
        progress.note(
            f"{plan.method} is named {name}; train on it with: agentcli train "
            f"{word_of(run.path)} --credit {name}"
        )
    if plan.graph:
        folder = plan.run.path / "graphs"
        file = plan.run.credit(plan.method)
        summary["graphs"] = _export(trees, file, folder, plan.switches)
    return session.finish(statistics=summary)


def _export(
    trees: Path,
    credit: Path,
    folder: Path,
    settings: msgspec.Struct,
) -> dict[str, Any]:
    """Writes the state graph of every tree, with the advantages of its actions.

    Returns the sizes of RewardFlow Table 9.
    """
    from agentcli.credit.export import graph_of, stem_of, write_graph
    from agentcli.credit.rewardflow import RewardFlowSettings
    from agentcli.credit.similarity import require_states
    from agentcli.credit.survey import survey_of

    sizes = []
    # The credit on disk, not that in memory: a graph shows what training will read.
    pairs = zip(read_numbered(trees, Tree), read_records(credit, Credit), strict=True)
    for (line, tree), given in pairs:
        with prefixed(f"{trees}:{line}", DataError):
            survey = survey_of(tree, RewardFlowSettings())
            require_states(survey, "a graph", "leave out --graph")
        graph = graph_of(tree, settings)
        write_graph(graph, folder / stem_of(line, tree.task.id), given)
        sizes.append(graph.size)
    return graph_sizes(sizes)


def credit_of(settings: Settings) -> str | None:
    """The credit method of a loop's iterations; None if the objective reads no credit.

    Raises UsageError for an unknown method or setting, and for a method that needs data
    that rollouts do not write.
    """
    name, _, switches = make(settings.credit)
    if not make_objective(settings.train.objective).reads_credit:
        return None
    check_embedding_model(switches)
    has_critic = isinstance(options_of(settings.train), CriticOptions)
    if known(name).needs_values and not (has_critic or settings.rollout.critic):
        raise UsageError(
            f"credit.method {name}: needs a critic's value of every step, and "
            f"train.objective {settings.train.objective} trains none; take --set "
            "train.objective=ppo, or name a critic with --set rollout.critic=DIR"
        )
    if known(name).needs_scores and not settings.rollout.prm:
        raise UsageError(
            f"credit.method {name}: needs a process reward model's score of every step; "
            "name one with --set rollout.prm=DIR"
        )
    has_phases = isinstance(settings.rollout, RootedRollout)
    if getattr(switches, "first_phase", "all") != "all" and not has_phases:
        raise UsageError(
            f"credit.first_phase: trees of rollout.method {settings.rollout.method} "
            f"have no first phase; sample with {', '.join(methods_with('roots'))}, or "
            "take --set credit.first_phase=all"
        )
    return name
