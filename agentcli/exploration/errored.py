"""The tree of a task that could not be played, and its errored leaf."""

from agentcli.environments.protocol import Context
from agentcli.exploration.nodes import (
    UNSAID,
    Lineage,
    Node,
    Response,
    as_step,
    reached,
)
from agentcli.policies.protocol import Reply
from agentcli.prompts.protocol import Moment
from agentcli.records.types import Ledger, Outcome, Step, Task, Tree


def errored_tree(task: Task, method: str, seed: int, why: str) -> Tree:
    """A tree with a single errored leaf, which --resume plays again."""
    nowhere = Context(task=task, instruction="", observations=("",))
    _, step = errored_leaf(nowhere, 0, why)
    return Tree(
        task=task,
        instruction="",
        method=method,
        seed=seed,
        steps=[step],
        ledger=Ledger(leaves=1),
    )


def errored_leaf(context: Context, index: int, why: str) -> tuple[Lineage, Step]:
    """The errored leaf of a trajectory that never began, with its lineage."""
    node = Node((), (), Moment(copies=(context,)))
    after = reached(node, index, {}, {})
    response = Response(UNSAID, Reply(text=""), error=why)
    return after.lineage, as_step(node, response, after, {}, Outcome.ERRORED)
