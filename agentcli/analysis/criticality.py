"""How much each action decides, and whether entropy tells (CARL eq. 5, Figs. 2 and 5).

The trees are those of `rollout.method=criticality`: in every state of a trajectory some
responses were drawn, each followed greedily. The criticality of the trajectory's action
there is the standard deviation of their rewards (eq. 5), the entropy of the state the
mean of their -log pi(Y|s) / |Y| (eq. 7-8), which a policy without log-probabilities
has not.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from agentcli.analysis.tree_measures import tells_entropy
from agentcli.credit.survey import survey_of
from agentcli.credit.switches import Switches
from agentcli.records.grouping import grouped, mean
from agentcli.records.trees import children, depths
from agentcli.records.types import Count, Outcome, Record, Step, Tree
from agentcli.reports.blocks import Blocks
from agentcli.reports.tables import percent

METHOD = "criticality"
IDLE = 0.01
"""Below this criticality an action decides nothing; CARL says "almost no impact"."""
CRITICAL = 0.4
"""Above this one it is critical (CARL section 4)."""
VERB = re.compile(r"[^\W\d]+")


class CriticalityGroup(Record, kw_only=True):
    """The actions of one kind, or at one position."""

    name: str
    actions: Count
    criticality: float
    """The mean over these actions."""
    critical: float
    """Share of them above 0.4."""


class Criticality(Record, kw_only=True):
    """How much the actions of some trees decide.

    None: there is nothing to measure, or the policy gives no log-probabilities.
    """

    actions: Count
    criticality: float
    """The mean over all actions."""
    idle: float
    """Share of the actions below 0.01 (CARL: over half)."""
    critical: float
    """Share of those above 0.4 (CARL: around a tenth)."""
    entropy_idle: float | None
    """Mean entropy of the states before idle actions, in nats per token."""
    entropy_critical: float | None
    """The same before critical ones."""
    told: float | None
    """Share of the pairs of an idle and a critical action in which the critical one has
    more entropy; an equal pair is half of one. Without a connection it is 0.5.
    """
    kinds: list[CriticalityGroup]
    """By the first word of the action."""
    positions: list[CriticalityGroup]
    """By its place in the trajectory, from 1 on."""


class Examined(NamedTuple):
    """One action of a trajectory whose alternatives were drawn."""

    kind: str
    position: int
    criticality: float
    entropy: float | None
    """None: the draws do not tell it."""


def measure(trees: Iterable[Tree]) -> Criticality:
    """The criticality of all examined actions.

    Raises ValueError for trees of another method, and where nothing was examined.
    """
    found = [action for tree in trees for action in examined(tree)]
    if not found:
        raise ValueError("no action was drawn again and led to an end at least twice")
    idle = [each for each in found if each.criticality < IDLE]
    critical = [each for each in found if each.criticality > CRITICAL]
    kinds = grouped((each.kind, each) for each in found)
    positions = grouped((each.position, each) for each in found)
    return Criticality(
        actions=len(found),
        criticality=fmean(each.criticality for each in found),
        idle=len(idle) / len(found),
        critical=len(critical) / len(found),
        entropy_idle=mean(_entropies(idle)),
        entropy_critical=mean(_entropies(critical)),
        told=_told(_entropies(idle), _entropies(critical)),
        kinds=[_group(kind, kinds[kind]) for kind in sorted(kinds)],
        positions=[_group(str(place), positions[place]) for place in sorted(positions)],
    )


def examined(tree: Tree) -> Iterator[Examined]:
    """The actions of a tree's trajectories, each with what its alternatives came to.

    Alternatives that errored count nowhere. An initial state has the first trajectory's
    action. Raises ValueError for a tree of another method.
    """
    if tree.method != METHOD or tree.roots is None:
        raise ValueError(
            f"its trees are of rollout.method {tree.method}, and criticality is measured "
            f"from those of {METHOD}; roll out with --method {METHOD}"
        )
    # With the default reward: another would scale spreads, but not IDLE and CRITICAL.
    survey = survey_of(tree, Switches())
    before = depths(tree)
    for state, siblings in children(tree).items():
        # Steps are in lineage order: the trajectories' own come before the draws. They
        # are no draws themselves, because what followed them was sampled.
        own = 1 if state is not None else tree.roots
        drawn = [step for step in siblings[own:] if survey.live[step.id]]
        if len(drawn) > 1:
            # One leaf is below each, so the mean reward there is R(tau).
            rewards = [survey.rewards[step.id] for step in drawn]
            place = before[siblings[0].id] + 1
            entropy = _entropy(drawn)
            yield Examined(_kind(siblings[0]), place, pstdev(rewards), entropy)


def _entropy(drawn: Sequence[Step]) -> float | None:
    """The entropy of the state that some responses were drawn in (CARL eq. 7-8)."""
    if not all(map(tells_entropy, drawn)):
        return None
    return fmean(-fmean(step.logprobs) for step in drawn)


def _entropies(actions: Sequence[Examined]) -> list[float]:
    return [each.entropy for each in actions if each.entropy is not None]


def criticality_tables(file: str, found: Criticality) -> Iterator[Blocks]:
    """How much actions decide: all of them, then by kind and by position."""
    table = Blocks(file, ["measured"], ["value"])
    table.add(["actions", f"{found.actions}"])
    table.add(["mean criticality", f"{found.criticality:.3f}"])
    table.add(["% below 0.01", percent(found.idle)])
    table.add(["% above 0.4", percent(found.critical)])
    table.add(["entropy before those below 0.01", _figure(found.entropy_idle)])
    table.add(["entropy before those above 0.4", _figure(found.entropy_critical)])
    table.add(["share of such pairs that entropy tells apart", _figure(found.told)])
    yield table
    numbers = ["actions", "mean criticality", "% above 0.4"]
    for head, groups in (("kind", found.kinds), ("position", found.positions)):
        table = Blocks(f"by {head}", [head], numbers)
        for one in groups:
            mean, critical = f"{one.criticality:.3f}", percent(one.critical)
            table.add([one.name, f"{one.actions}", mean, critical])
        yield table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _kind(step: Step) -> str:
    """The first word of an action, e.g. `go` or `search`."""
    if step.outcome is Outcome.ERRORED and step.action is None:
        return "errored"
    verb = VERB.search(step.action or "")
    return verb[0] if verb else "unreadable"


def _group(name: str, actions: Sequence[Examined]) -> CriticalityGroup:
    return CriticalityGroup(
        name=name,
        actions=len(actions),
        criticality=fmean(each.criticality for each in actions),
        critical=fmean(each.criticality > CRITICAL for each in actions),
    )


def _told(idle: Sequence[float], critical: Sequence[float]) -> float | None:
    """The area under the curve of a test by entropy (Mann-Whitney); None without a pair."""
    if not idle or not critical:
        return None
    wins = 0.0
    for high in critical:
        wins += sum((high > low) + (high == low) / 2 for low in idle)
    return wins / (len(idle) * len(critical))
