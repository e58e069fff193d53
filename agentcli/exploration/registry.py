"""All exploration methods by name. An installed package adds its own under the entry-point group
`agentcli.exploration`: a module with `async def explore(actor, settings) -> Tree`."""

from agentcli.errors import UsageError
from agentcli.exploration.budget import Explore, first_leaves, parse_budget, within_deadline
from agentcli.exploration.triggers import probability_of
from agentcli.records.settings import Settings
from agentcli.registry import Registry

METHODS = {
    "chain": "agentcli.exploration.chain",
    "spark": "agentcli.exploration.spark",
    "carl": "agentcli.exploration.carl",
    "arpo": "agentcli.exploration.arpo",
    "treerl": "agentcli.exploration.treerl",
    "treerpo": "agentcli.exploration.treerl",
    "dpepo": "agentcli.exploration.dpepo",
    "test-time-branch": "agentcli.exploration.test_time_branch",
}

FORKING = ("spark", "carl", "arpo", "treerl", "treerpo")
"""Methods that begin with `rollout.roots` trajectories."""


REGISTRY = Registry("agentcli.exploration", METHODS, key="rollout.method", what="exploration method")


def method_names() -> list[str]:
    """Names of the built-in and installed methods, sorted."""
    return REGISTRY.names()


def make(name: str) -> Explore:
    """The method's explore function, bounded by the tree's deadline. Raises UsageError with the nearest name."""
    return within_deadline(REGISTRY.load(name).explore)


def check(settings: Settings) -> None:
    """Raises UsageError for what would end the first tree, before a policy is loaded for it: an unknown method, budget or branching
    criterion, more roots than leaves, and votes that are to be drawn again."""
    rollout = settings.rollout
    make(rollout.method)
    parse_budget(rollout.budget)
    if rollout.method in FORKING:
        first_leaves(rollout)
    if rollout.method == "spark":
        probability_of(rollout.branch)
    if rollout.distinct and rollout.method == "test-time-branch":
        raise UsageError(
            f"rollout.distinct is {rollout.distinct}, and votes of test-time-branch are never drawn again; set it to 0"
        )
