"""Each stage in one call, as its command makes it: plan it, then perform it in a session of its own."""

from pathlib import Path

from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages import credit as credit_stage
from agentcli.stages import demos as demos_stage
from agentcli.stages import evaluate as evaluate_stage
from agentcli.stages import rollout as rollout_stage
from agentcli.stages import train as train_stage
from agentcli.stages.session import Invocation, carry_out

ONCE = Invocation([])


def rollout(settings: Settings, out: Path, invocation: Invocation = ONCE, *, model: str | None = None) -> StageRecord:
    return carry_out(rollout_stage.plan(settings, out, model=model), rollout_stage.perform, invocation)


def demos(settings: Settings, out: Path, invocation: Invocation = ONCE, *, model: str | None = None) -> StageRecord:
    return carry_out(demos_stage.plan(settings, out, model=model), demos_stage.perform, invocation)


def evaluate(
    settings: Settings, out: Path, invocation: Invocation = ONCE, *, model: str | None = None
) -> EvaluationSummary:
    return carry_out(evaluate_stage.plan_evaluation(settings, out, model=model), evaluate_stage.perform, invocation)


def pass_at_k(
    settings: Settings, out: Path, invocation: Invocation = ONCE, *, model: str | None = None
) -> EvaluationSummary:
    return carry_out(evaluate_stage.plan_pass_at_k(settings, out, model=model), evaluate_stage.perform, invocation)


def branch(
    settings: Settings, out: Path, invocation: Invocation = ONCE, *, model: str | None = None
) -> EvaluationSummary:
    return carry_out(
        evaluate_stage.plan_test_time_branch(settings, out, model=model), evaluate_stage.perform, invocation
    )


def assign_credit(settings: Settings, run: Path, invocation: Invocation = ONCE, *, graph: bool = False) -> StageRecord:
    return carry_out(credit_stage.plan(settings, run, graph=graph), credit_stage.perform, invocation)


def train(settings: Settings, run: Path, out: Path | None, invocation: Invocation = ONCE, *, model: str) -> StageRecord:
    return carry_out(train_stage.plan(settings, run, out, model=model), train_stage.perform, invocation)
