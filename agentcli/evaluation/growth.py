"""What trees cost and held, without their texts: a rollout reduced to its ledger, the outcomes of its leaves and its tags."""

from collections.abc import Iterable
from typing import Any

import msgspec

from agentcli.evaluation.statistics import clustered_bootstrap
from agentcli.records.types import SCHEMA_VERSION, Ledger, Outcome, Task


class StepShape(msgspec.Struct):
    """The part of a step that is counted."""

    outcome: Outcome | None = None
    tag: str | None = None


class TreeShape(msgspec.Struct):
    """The part of a tree record that is counted: decoding it is quick and holds no text."""

    task: Task
    method: str
    steps: list[StepShape]
    ledger: Ledger
    schema_version: int = SCHEMA_VERSION


def totals(trees: Iterable[TreeShape]) -> dict[str, Any]:
    """method (several with commas), tasks (their ids, in order), success of the leaves (errored ones are no success; the interval
    is a bootstrap by task), errored (leaves), explore (share of the steps), and what `paid` says."""
    tasks: list[str] = []
    methods: dict[str, None] = {}
    groups: list[list[float]] = []
    ledger, steps, explored, errored = Ledger(), 0, 0, 0
    for tree in trees:
        tasks.append(tree.task.id)
        methods[tree.method] = None
        outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
        groups.append([float(outcome is Outcome.SUCCESS) for outcome in outcomes])
        errored += outcomes.count(Outcome.ERRORED)
        steps += len(tree.steps)
        explored += sum(step.tag == "explore" for step in tree.steps)
        ledger += tree.ledger
    low, high = clustered_bootstrap(groups)
    leaves = sum(map(len, groups))
    return {
        "method": ", ".join(methods),
        "tasks": tasks,
        "success": {"rate": sum(map(sum, groups)) / max(1, leaves), "low": low, "high": high},
        "errored": errored,
        "explore": explored / max(1, steps),
        **paid(ledger, leaves),
    }


def paid(ledger: Ledger, leaves: int) -> dict[str, Any]:
    """shared (share of the prompt tokens that a prefix cache saves), steps_per_leaf, tokens_per_leaf (generated ones) and ledger;
    `leaves`: how many the trees have."""
    return {
        "shared": ledger.shared_prompt_tokens / max(1, ledger.prompt_tokens),
        "steps_per_leaf": ledger.steps / max(1, leaves),
        "tokens_per_leaf": ledger.generated_tokens / max(1, leaves),
        "ledger": {name: getattr(ledger, name) for name in Ledger.__struct_fields__},
    }
