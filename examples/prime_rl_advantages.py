"""prime-rl's orchestrator with the credit of agentcli in the place of its `grpo`.

    python prime_rl_advantages.py @ orchestrator.toml

starts prime-rl's own orchestrator, where algo.type = "grpo" (the default) now means
METHOD below. Every message that the policy sampled is a step; prime-rl keeps a rollout
as a graph of messages, so the steps of a rollout may branch. The reward of a trace
counts at each of its last messages, and traces with errors are left out.

State keys and the other lists of agentcli.credit.lists.Rollouts travel in `trace.info`:
a taskset sets trace.info["agentcli"] = {"states": [...], "success": True}, with one
state for each sampled message, in the order of the nodes.

Run with prime-rl 559b447 and verifiers 0.4.0 on a CPU (in Python 3.11, with the
TypedDict of typing_extensions): build_algorithm and finalize_group, on traces made with
verifiers. Not run: a training.
"""

from collections.abc import Sequence
from typing import Any

import verifiers.v1 as vf
from prime_rl.orchestrator.algo import ALGORITHM_CLASSES, Algorithm, assign_advantages
from prime_rl.orchestrator.algo.base import iter_trainable_traces

from agentcli import step_advantages
from agentcli.credit.lists import Rollouts

METHOD = "rewardflow"
SWITCHES: dict[str, Any] = {}
"""Switches of the method, for instance {"gamma": 0.9}."""


class CreditAlgorithm(Algorithm):
    """Advantages of METHOD among the traces of a group."""

    async def score_group(self, episodes: list[vf.Episode]) -> None:
        """Assigns one advantage to every sampled token of the group's traces."""
        traces = [trace for _, trace in iter_trainable_traces(episodes)]
        if not traces:
            return
        parents = [parents_of(trace.nodes) for trace in traces]
        lists = {
            "groups": [0] * len(traces),
            "rewards": [
                [trace.reward * (step not in links) for step in range(len(links))]
                for trace, links in zip(traces, parents, strict=True)
            ],
            "parents": parents,
            **carried(traces, parents),
        }
        advantages = step_advantages(lists, METHOD, **SWITCHES)
        for trace, gains in zip(traces, advantages, strict=True):
            tokens: list[float] = []
            sampled = (sum(node.mask) for node in trace.nodes if any(node.mask))
            for count, gain in zip(sampled, gains, strict=True):
                tokens += [gain or 0.0] * count
            assign_advantages(trace, tokens)


def parents_of(nodes: Sequence[vf.MessageNode]) -> list[int | None]:
    """The step before each step; a step is a node with sampled tokens."""
    steps: dict[int, int] = {}
    parents = []
    for number, node in enumerate(nodes):
        if not any(node.mask):
            continue
        above = node.parent
        while above is not None and above not in steps:
            above = nodes[above].parent
        parents.append(None if above is None else steps[above])
        steps[number] = len(steps)
    return parents


def carried(traces: list[vf.Trace], parents: list[list[Any]]) -> dict[str, list[Any]]:
    """The lists of Rollouts that every trace carries; a success is that of all its ends."""
    infos = [trace.info.get("agentcli", {}) for trace in traces]
    lists = {}
    for name in Rollouts.__struct_fields__:
        if all(name in info for info in infos):
            lists[name] = [info[name] for info in infos]
    if "success" in lists:
        sizes = map(len, parents)
        pairs = zip(lists["success"], sizes, strict=True)
        lists["success"] = [[success] * size for success, size in pairs]
    return lists


ALGORITHM_CLASSES["grpo"] = CreditAlgorithm

if __name__ == "__main__":
    from prime_rl.entrypoints.orchestrator import main

    main()
