"""What trees cost and held, without most of their texts: a rollout reduced to its ledger, the outcomes of its leaves, and the tags,
faults and actions of its responses."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from agentcli.evaluation.statistics import clustered_bootstrap
from agentcli.records.siblings import Siblings, by_place, was_sampled
from agentcli.records.types import SCHEMA_VERSION, Ledger, Outcome, StopReason, Task, Validity


class MoveShape(msgspec.Struct):
    """The part of a move that names an action."""

    copy: int
    action: str


class StepShape(msgspec.Struct):
    """The part of a step that is counted."""

    parent: int | None = None
    response: str = ""
    action: str | None = None
    moves: list[MoveShape] = []
    outcome: Outcome | None = None
    tag: str | None = None
    validity: Validity = Validity.VALID
    stop: StopReason = StopReason.NONE
    error: str | None = None


class TreeShape(msgspec.Struct):
    """The part of a tree record that is counted: decoding it is quick and holds no prompt and no observation."""

    task: Task
    method: str
    steps: list[StepShape]
    ledger: Ledger
    schema_version: int = SCHEMA_VERSION


def totals(trees: Iterable[TreeShape]) -> dict[str, Any]:
    """What a comparison says of a rollout.

    method (several with commas), tasks (their ids, in order), success of the leaves (errored ones are no success; the interval
    is a bootstrap by task), errored (leaves), explore, malformed and cut, distinct_at_start and distinct_of_forks, and what `paid`
    says.

    explore, malformed and cut are shares of the responses: the steps that nothing broke, however many copies they act in. cut:
    max_tokens ended them; None where no model gave any. distinct_at_start, distinct_of_forks: as `distinct` of `paid`, of the
    siblings at the initial state, and of all others.
    """
    tasks: list[str] = []
    methods: dict[str, None] = {}
    groups: list[list[float]] = []
    counts: Counter[str] = Counter()
    ledger, errored = Ledger(), 0
    at_start, of_forks = Siblings(), Siblings()
    for tree in trees:
        tasks.append(tree.task.id)
        methods[tree.method] = None
        outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
        groups.append([float(outcome is Outcome.SUCCESS) for outcome in outcomes])
        errored += outcomes.count(Outcome.ERRORED)
        responses = [step for step in tree.steps if step.error is None and was_sampled(step)]
        counts["all"] += len(responses)
        counts["explore"] += sum(step.tag == "explore" for step in responses)
        counts["malformed"] += sum(step.validity is Validity.MALFORMED for step in responses)
        counts["asked"] += sum(step.stop is not StopReason.NONE for step in responses)
        counts["cut"] += sum(step.stop is StopReason.LENGTH for step in responses)
        ledger += tree.ledger
        first, later = by_place(tree.steps)
        at_start, of_forks = at_start.plus(first), of_forks.plus(later)
    low, high = clustered_bootstrap(groups)
    leaves = sum(map(len, groups))
    return {
        "method": ", ".join(methods),
        "tasks": tasks,
        "success": {"rate": sum(map(sum, groups)) / max(1, leaves), "low": low, "high": high},
        "errored": errored,
        "explore": counts["explore"] / max(1, counts["all"]),
        "malformed": counts["malformed"] / max(1, counts["all"]),
        "cut": counts["cut"] / counts["all"] if counts["asked"] else None,
        "distinct_at_start": at_start.share,
        "distinct_of_forks": of_forks.share,
        **paid(ledger, leaves),
    }


def paid(ledger: Ledger, leaves: int) -> dict[str, Any]:
    """shared (share of the prompt tokens that a prefix cache saves), distinct (of the steps with a sibling, the share of different
    actions; None where none has one), steps_per_leaf, tokens_per_leaf (generated ones) and ledger; `leaves`: how many the trees
    have."""
    return {
        "shared": ledger.shared_prompt_tokens / max(1, ledger.prompt_tokens),
        "distinct": Siblings(ledger.siblings, ledger.distinct_siblings).share,
        "steps_per_leaf": ledger.steps / max(1, leaves),
        "tokens_per_leaf": ledger.generated_tokens / max(1, leaves),
        "ledger": {name: getattr(ledger, name) for name in Ledger.__struct_fields__},
    }
