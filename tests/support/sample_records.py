"""One record of every kind with all its fields filled, as the stages write them: what the reader tests damage."""

from typing import Any

import msgspec
from agentcli.analysis.schema import METRICS
from agentcli.credit.registry import make
from agentcli.evaluation.compare import RunComparison, SignedRankTest, side_by_side
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.record import EvaluationSummary, LoopMetrics
from agentcli.evaluation.summary import summarise
from agentcli.records.chats import Conversation, Preference, PromptCompletion, answered, asked
from agentcli.records.settings import Settings
from agentcli.records.study import ArmOutcome, SeedDifference, StudyResults
from agentcli.records.types import (
    Credit,
    Episode,
    GraphSize,
    Ledger,
    Manifest,
    Move,
    Outcome,
    Panel,
    StageRecord,
    Step,
    StepCredit,
    StopReason,
    Task,
    Tree,
    TreeSeconds,
    Validity,
)
from agentcli.stages.panels import make_panel

PARENTS = (None, 0, 1, 1, 0, None, 5, None)
"""A tree with forks at two depths, a chain, and a root that is a leaf."""
ENDS = {2: Outcome.SUCCESS, 3: Outcome.FAILURE, 4: Outcome.TRUNCATED, 6: Outcome.ERRORED, 7: Outcome.SUCCESS}


def task(number: int = 1) -> Task:
    return Task(id=f"train/pick_clean_then_place-Cup-{number}", world="alfworld", split="train", kind="pick_clean")


def step(number: int, parent: int | None) -> Step:
    end = ENDS.get(number)
    return Step(
        id=number,
        parent=parent,
        prompt=f'task "clean a cup"\nnow at sink {number}',
        response=f"<think>café ☕</think><action>go to {number}</action>",
        token_ids=[5, 17, number],
        logprobs=[-0.25, -1.5, 0.0],
        stop=StopReason.STOP,
        observation=f"You see {number}.",
        admissible=["look", f"go to {number}"],
        tag="think",
        action=f"go to {number}",
        validity=Validity.INADMISSIBLE if number == 1 else Validity.VALID,
        state=f"s{parent}",
        next_state=f"s{number}",
        next_observation="Nothing happens." if number == 4 else f"You arrive at {number}.",
        reward=float(end is Outcome.SUCCESS),
        outcome=end,
        error="the engine died" if end is Outcome.ERRORED else None,
        mask="noise" if number == 4 else None,
        value=0.5,
    )


def tree(number: int = 1) -> Tree:
    steps = [step(position, parent) for position, parent in enumerate(PARENTS)]
    steps[7].moves = [
        Move(copy=copy, action="look", observation="o", state="a", next_state="b", next_observation="p", reward=0.5)
        for copy in (1, 2)
    ]
    ledger = Ledger(leaves=5, steps=8, forks=3, generated_tokens=24, prompt_tokens=80)
    return Tree(task=task(number), instruction="clean a cup", method="spark", seed=2**63, steps=steps, ledger=ledger)


def credit(number: int = 1) -> Credit:
    _, assign, settings = make({"method": "grpo"})
    return assign(tree(number), settings)


def episode() -> Episode:
    return next(episodes(tree()))


def evaluation() -> EvaluationSummary:
    told = {"stage": "eval", "split": "L0", "label": "L0", "policy": "transformers", "seed": 0, "samples": 5}
    walked = {"name": "L0", "tasks": 1, "sha256": panel().sha256}
    spent = {"unit": "steps", "limit": 10, "spent": 9, "trees": 1}
    more = {"model": None, "temperature": 1.0, "panel": walked, "ledger": Ledger(steps=8), "budget": spent}
    found = msgspec.to_builtins(summarise(episodes(tree()))) | told | more
    return msgspec.convert(found | {"pass_at_k": {"1": {"rate": 0.5, "low": 0.25, "high": 1.0}}}, EvaluationSummary)


def study_results() -> StudyResults:
    panels = {"L0": {"success": 0.5}}
    outcome = ArmOutcome(arm="carl", seed=1, panels=panels, course=[0.25, 0.5], totals={"steps": 10.0})
    gains = [seed_difference()]
    return StudyResults(study={"title": "t"}, outcomes=[outcome], differences=gains, unlike=["steps"])


def seed_difference() -> SeedDifference:
    return SeedDifference(
        panel="L0",
        measure="success",
        arm="carl",
        seeds=[0, 1],
        reference_mean=40.0,
        mean=50.0,
        gain=10.0,
        low=-3.5,
        high=23.5,
        p=0.5,
    )


def comparison() -> RunComparison:
    rows = list(episodes(tree()))
    return RunComparison(
        first="a-*",
        evaluations={"L0": side_by_side({"a-*": rows, "b-*": rows})},
        benchmarks=["L0"],
        wilcoxon={"b-*": SignedRankTest(benchmarks=1, p=1.0)},
        sides={"a-*": ["a-0"], "b-*": ["b-0"]},
        differences=[seed_difference()],
        unlike=["steps"],
    )


def panel() -> Panel:
    return make_panel("L0", "alfworld", [task(1), task(2)])


def stage_record() -> StageRecord:
    return StageRecord(
        command=["agentcli", "rollout"],
        settings=msgspec.to_builtins(Settings()),
        versions={"python": "3.11"},
        git_commit="0" * 40,
        seed=3,
        inputs={"trees.jsonl": "ab" * 32},
        panel=panel().sha256,
        panel_name="L0",
        counts={"trees": 2},
        ledger=Ledger(steps=8),
        statistics={"success": {"rate": 0.5, "low": None}},
        seconds={"wall": 1.25},
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:00:01+00:00",
    )


def metrics(kind: type[Any]) -> Any:
    """A metrics line in which every figure is 1."""
    if kind is LoopMetrics:
        return LoopMetrics(iteration=0, updates=4, figures={"rollout/success": 1.0})
    names = [field.name for field in msgspec.structs.fields(kind) if field.name != "schema_version"]
    line = kind(**dict.fromkeys(names, 1))
    for name in names:
        if kind.__annotations__.get(name) in (bool, "bool"):
            setattr(line, name, True)
    return line


def every_record() -> dict[str, Any]:
    """One record of every kind, by its name in `agentcli schema`."""
    return {
        "task": task(),
        "step": step(0, None),
        "move": tree().steps[7].moves[0],
        "ledger": Ledger(steps=8),
        "tree": tree(),
        "tree-seconds": TreeSeconds(task="t", policy=1.5, environment=0.25, wall=1.0),
        "graph-size": GraphSize(nodes=3, edges=2),
        "step-credit": StepCredit(step=0, advantage=1.5, parts={"reward": 1.0}, weight=0.5),
        "credit": credit(),
        "episode": episode(),
        "evaluation": evaluation(),
        "prompt-completion": PromptCompletion(
            prompt=asked("where?"), completion=answered("there"), task="t", tree=1, step=0
        ),
        "conversation": Conversation(
            messages=[*asked("where?"), *answered("there")],
            reward=1.0,
            success=True,
            truncated=False,
            error=None,
            group="t",
            instruction="find it",
            kind="k",
            rewards=[0.0, 1.0],
            advantages=[None, 0.5],
            steps=[0],
            states=["here", "there"],
            canonical=["here", None],
            actions=["go there"],
            validity=[Validity.VALID],
            tags=[None],
            looked=[False],
        ),
        "preference": Preference(
            prompt=asked("where?"),
            chosen=answered("there"),
            rejected=answered("here"),
            task="t",
            tree=1,
            chosen_step=0,
            rejected_step=1,
        ),
        "panel": panel(),
        "comparison": comparison(),
        "study": study_results(),
        "stage-record": stage_record(),
        "manifest": Manifest(stages={"rollout": stage_record(), "train": stage_record()}),
        **{name: metrics(kind) for name, kind in METRICS.items()},
    }
