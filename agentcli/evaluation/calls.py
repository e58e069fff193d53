"""How often each tool is called, step by step (Rare-tool Figures 4 and 5).

Errored trajectories are left out. A step shared by several trajectories counts once for
each of them, since the distribution at step t is over trajectories.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from agentcli.records.calls import ANSWER, read_call
from agentcli.records.trees import acts_by_copy, unbroken_paths
from agentcli.records.types import Move, Step, Tree, Validity

NO_CALL = "none"
"""The name for a step that is unreadable or does not call an existing tool."""
NO_TOOL = frozenset({NO_CALL, ANSWER})
"""Names that are counted, but left out of the entropy."""


class CallShares(msgspec.Struct, kw_only=True):
    """The calls at one step of trajectories, or at all steps."""

    step: int | None
    """From 1; None: all of them."""
    trajectories: int
    """Trajectories that have this step."""
    calls: dict[str, int]
    """How often each tool was called, the most frequent first."""
    entropy: float
    """-sum p log p over the tools and chain of thought, in nats, without answers and
    steps that call no tool. The maximum for eight tools is log(9).
    """

    @property
    def calls_any(self) -> bool:
        """Whether any tool was called; else the entropy is of nothing."""
        return bool(self.calls.keys() - NO_TOOL)


def call_shares(trees: Iterable[Tree]) -> list[CallShares]:
    """The calls of all steps together, then of step 1, 2, ..."""
    by_step: dict[int, Counter[str]] = defaultdict(Counter)
    walked: Counter[int] = Counter()
    for tree in trees:
        for steps in unbroken_paths(tree):
            for number, step in enumerate(steps, 1):
                # A response in copies may make several calls.
                names = [_name(act) for _, act in acts_by_copy(step)]
                by_step[number].update(names or [NO_CALL])
                walked[number] += 1
    together = sum(by_step.values(), Counter[str]())
    shares = [_shares(None, together, walked[1])]
    for number, counts in by_step.items():
        shares.append(_shares(number, counts, walked[number]))
    return shares


def _name(act: Step | Move) -> str:
    """The tool that was called, cot, answer or none."""
    call = read_call(act.action or "")
    if call is None or act.validity is Validity.INADMISSIBLE:
        return NO_CALL
    return call.name


def _shares(step: int | None, counts: Counter[str], trajectories: int) -> CallShares:
    tools = counts.keys() - NO_TOOL
    calls = [counts[tool] for tool in tools]
    total = sum(calls)
    terms = []
    for count in calls:
        share = count / total
        terms.append(-share * math.log(share))
    # Equally frequent ones in the order of their names.
    by_name = Counter(dict(sorted(counts.items())))
    return CallShares(
        step=step,
        trajectories=trajectories,
        calls=dict(by_name.most_common()),
        entropy=math.fsum(terms),
    )
