"""All exploration methods by name.

An installed package adds methods under the entry-point group `agentcli.exploration`:
modules with `async def explore(actor, settings) -> Tree`. The annotation of `settings`
is the class of the method's settings (settings.py). A method that is not packaged is
named by the location of its function: "folder/file.py:function".
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from inspect import iscoroutinefunction

from agentcli.errors import DataError, UsageError
from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import parse_budget
from agentcli.prompts.registry import GROWING
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.records.trees import leaves, refuse_structure, validate_tree
from agentcli.records.types import Tree
from agentcli.registry import Registry

Explore = Callable[[Actor, RolloutSettings], Awaitable[Tree]]
"""An exploration method; the annotation of `settings` is its settings class."""

METHODS = {
    "chain": "agentcli.exploration.chain",
    "spark": "agentcli.exploration.spark",
    "carl": "agentcli.exploration.carl",
    "arpo": "agentcli.exploration.arpo",
    "treerl": "agentcli.exploration.treerl",
    # Grows trees as treerl does; only the credit differs (CARL App. C.5; treerl.py).
    "treerpo": "agentcli.exploration.treerl",
    "dpepo": "agentcli.exploration.dpepo",
    "rare-tool": "agentcli.exploration.rare_tool",
    "criticality": "agentcli.exploration.criticality",
    "test-time-branch": "agentcli.exploration.test_time_branch",
}

REGISTRY = Registry(
    "agentcli.exploration",
    METHODS,
    key="rollout.method",
    kind="exploration method",
    in_full=True,
)


def method_names() -> list[str]:
    """Names of the built-in and installed methods, sorted."""
    return REGISTRY.names()


@cache
def make(name: str) -> Explore:
    """The method's explore function.

    It is loaded once, so that its settings have one class. Raises UsageError with the
    nearest name for an unknown method, and for a function that is not `async`.
    """
    explore = REGISTRY.function(name, "explore")[0]
    if not iscoroutinefunction(explore):
        raise UsageError(
            f"rollout.method: {name} does not wait for the world; write it as `async "
            "def explore(actor, settings) -> Tree`"
        )
    return explore


async def grow_tree(explore: Explore, actor: Actor, rollout: RolloutSettings) -> Tree:
    """The tree that a method grows.

    Raises what the method raises, and UsageError if it ends the program or cancels
    itself, or if what it returns is no finished tree within `rollout.leaves`.
    """
    title = f"rollout.method {rollout.method}"
    try:
        tree = await explore(actor, rollout)
    except SystemExit as error:
        raise UsageError(
            f"{title}: ends the program; raise another error instead"
        ) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        # Its deadline, or the end of the command.
        if task is not None and task.cancelling():
            raise
        raise UsageError(
            f"{title}: raises CancelledError; raise another error instead"
        ) from error
    _refuse_tree(tree, title, rollout)
    return tree


def _refuse_tree(tree: object, title: str, rollout: RolloutSettings) -> None:
    """Raises UsageError for what no later command could read."""
    if not isinstance(tree, Tree):
        raise UsageError(
            f"{title}: returns {tree!r:.60}, no tree; return actor.tree(NAME)"
        )
    task = f"{title}: task {tree.task.id}"
    if not tree.steps:
        raise UsageError(f"{task}: the tree has no steps; grow it with actor.act")
    # The built-in methods let the actor write every number.
    refuse = refuse_structure if rollout.method in METHODS else validate_tree
    try:
        refuse(tree, title)
    except DataError as error:
        raise UsageError(
            f"{error}; act until every node is finished, and return actor.tree(NAME) "
            "as it is"
        ) from error
    count = len(leaves(tree))
    if rollout.bounded and count > rollout.leaves:
        raise UsageError(
            f"{task}: the tree has {count} leaves, more than rollout.leaves "
            f"({rollout.leaves}); fork less often"
        )


def check(settings: Settings) -> None:
    """Refuses settings that would fail in the first tree, before a policy is loaded.

    Raises UsageError for an unknown method, a malformed budget, conflicting values,
    greedy responses with a method that needs others, rollout.distinct with one that
    votes, rollout.answer_judge with one that acts in several copies, and a conversation
    with one that runs other actions than are named.
    """
    rollout = settings.rollout
    make(rollout.method)
    parse_budget(rollout.budget)
    rollout.check()
    if rollout.needs_chance and settings.policy.temperature == 0:
        raise UsageError(
            f"policy.temperature: 0: {rollout.method} {rollout.needs_chance}; use "
            "--temperature above 0"
        )
    if rollout.answer_judge is not None and rollout.numbered:
        raise UsageError(
            f"rollout.answer_judge: a response of {rollout.method} acts in several "
            "copies, whose answers are not judged; leave it out"
        )
    style = settings.prompt.style
    if rollout.replaces and style in GROWING:
        raise UsageError(
            f"rollout.method: {rollout.method} may run another tool than a response "
            f"names, which a conversation (prompt.style {style}) cannot show; leave the "
            "style out"
        )
    if rollout.distinct and not rollout.redraws:
        raise UsageError(
            f"rollout.distinct is {rollout.distinct}, and responses of {rollout.method} "
            "are never drawn again; set it to 0"
        )
