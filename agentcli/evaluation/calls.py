"""How often each tool is called, step by step (001 Figures 4 and 5).

Trajectories that broke are left out. A step shared by several trajectories counts once
for each, since a distribution at step t is one over trajectories.
"""

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from agentcli.records.calls import read_call
from agentcli.records.trees import paths
from agentcli.records.types import Outcome, Tree

NO_CALL = "none"
"""Stands for a step whose action is no call, or that could not be read."""


class CallShares(msgspec.Struct, kw_only=True):
    """The calls at one step of trajectories, or at all steps."""

    step: int | None
    """From 1; None: all of them."""
    trajectories: int
    """Trajectories that have this step."""
    calls: dict[str, int]
    """How often each tool was called, the most frequent first."""
    entropy: float
    """-sum p log p over the tools, in nats; log(9) is the most for nine actions."""


def call_shares(trees: Iterable[Tree]) -> list[CallShares]:
    """The calls of all steps together, then of step 1, 2, ..."""
    by_step: list[Counter[str]] = []
    trajectories = 0
    for tree in trees:
        for steps in paths(tree):
            if steps[-1].outcome is Outcome.ERRORED:
                continue
            trajectories += 1
            for number, step in enumerate(steps):
                if number == len(by_step):
                    by_step.append(Counter())
                call = read_call(step.action or "")
                by_step[number][call.name if call else NO_CALL] += 1
    together = sum(by_step, Counter[str]())
    shares = [_shares(None, together, trajectories)]
    for number, counts in enumerate(by_step, 1):
        shares.append(_shares(number, counts, counts.total()))
    return shares


def _shares(step: int | None, counts: Counter[str], trajectories: int) -> CallShares:
    total = counts.total()
    terms = []
    for count in counts.values():
        share = count / total
        terms.append(-share * math.log(share))
    frequent_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return CallShares(
        step=step,
        trajectories=trajectories,
        calls=dict(frequent_first),
        entropy=math.fsum(terms),
    )
