"""The cost and the outcomes of a rollout, from trees decoded without most texts."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict

from agentcli.evaluation.record import Rate, rated
from agentcli.evaluation.statistics import clustered_bootstrap
from agentcli.records.siblings import Branching, Siblings, shares_by_depth, was_sampled
from agentcli.records.types import (
    SCHEMA_VERSION,
    Ledger,
    Outcome,
    StopReason,
    Task,
    Validity,
)


# Plain structs, because a Record refuses the fields that are left out here.
class MoveShape(Struct):
    """The part of a move that names an action."""

    copy: int
    action: str


class StepShape(Struct):
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


class TreeShape(Struct):
    """The part of a tree record that is counted.

    Decoding it is quick; it holds no prompt and no observation.
    """

    task: Task
    method: str
    steps: list[StepShape]
    ledger: Ledger
    # By this field `read_records` refuses the files of another version.
    schema_version: int = SCHEMA_VERSION


class Cost(Struct, kw_only=True):
    """A ledger, and what follows from it."""

    shared: float
    """Share of the prompt tokens that a prefix cache saves."""
    distinct: float | None
    """Share of distinct actions among the steps with a sibling; None if there are none.
    """
    steps_per_leaf: float
    tokens_per_leaf: float
    """Generated tokens."""
    ledger: Ledger


class Growth(Cost, kw_only=True):
    """The trees of one rollout.

    `explore`, `malformed` and `cut` are shares of the responses: the steps that nothing
    broke, however many copies they act in.
    """

    method: str
    """The exploration method; several are separated by commas."""
    tasks: int
    success: Rate
    """Share of the leaves; an errored one is not a success. The interval is a bootstrap
    by task.
    """
    errored: int
    """Number of errored leaves."""
    explore: float
    malformed: float
    cut: float | None
    """Responses that max_tokens ended. None where no model was asked."""
    distinct_at_start: float | None
    """`distinct` of the siblings at the initial state."""
    distinct_of_forks: float | None
    """`distinct` of all other siblings."""
    forks_by_depth: list[float]
    """Share of the forks after the first step, after the second, and so on."""
    seconds: dict[str, float] = {}
    """Duration by part of the work, from the manifest. Trees do not know theirs."""


def totals(trees: Iterable[TreeShape]) -> Growth:
    """The sums over all trees."""
    methods: dict[str, None] = {}
    successes: list[list[float]] = []
    errored = 0
    counts: Counter[str] = Counter()
    ledger = Ledger()
    branching = Branching()
    for tree in trees:
        methods[tree.method] = None
        outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
        won = [float(outcome is Outcome.SUCCESS) for outcome in outcomes]
        successes.append(won)
        errored += outcomes.count(Outcome.ERRORED)
        counts.update(_responses(tree))
        ledger += tree.ledger
        branching.add(tree.steps)
    leaves = sum(map(len, successes))
    rate = sum(map(sum, successes)) / max(1, leaves)
    responses = max(1, counts["responses"])
    cut = None
    if counts["asked"]:
        cut = counts["cut"] / responses
    return Growth(
        **asdict(cost_of(ledger, leaves)),
        method=", ".join(methods),
        tasks=len(successes),
        success=rated(rate, clustered_bootstrap(successes)),
        errored=errored,
        explore=counts["explore"] / responses,
        malformed=counts["malformed"] / responses,
        cut=cut,
        distinct_at_start=branching.at_start.share,
        distinct_of_forks=branching.of_forks.share,
        forks_by_depth=shares_by_depth(branching.forks),
    )


def cost_of(ledger: Ledger, leaves: int) -> Cost:
    """The shares and means of a ledger. `leaves`: how many the trees have."""
    divisor = max(1, leaves)
    return Cost(
        shared=ledger.shared_prompt_tokens / max(1, ledger.prompt_tokens),
        distinct=Siblings(ledger.siblings, ledger.distinct_siblings).share,
        steps_per_leaf=ledger.steps / divisor,
        tokens_per_leaf=ledger.generated_tokens / divisor,
        ledger=ledger,
    )


def _responses(tree: TreeShape) -> dict[str, int]:
    """The number of responses: all, those of a model, those with a tag or a fault."""
    # A step with a response and an error was answered, but the world broke.
    responses = [
        step for step in tree.steps if step.error is None and was_sampled(step)
    ]
    return {
        "responses": len(responses),
        "asked": sum(step.stop is not StopReason.NONE for step in responses),
        "cut": sum(step.stop is StopReason.LENGTH for step in responses),
        "explore": sum(step.tag == "explore" for step in responses),
        "malformed": sum(step.validity is Validity.MALFORMED for step in responses),
    }
