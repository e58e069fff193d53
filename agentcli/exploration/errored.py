"""The tree of a task that could not be played."""

from agentcli.environments.protocol import Context
from agentcli.exploration.keeping import Steps
from agentcli.exploration.nodes import UNSAID, Node, Response, as_step, reached
from agentcli.policies.protocol import Reply
from agentcli.prompts.protocol import Moment
from agentcli.records.types import Ledger, Outcome, Task, Tree


def errored_tree(task: Task, method: str, seed: int, why: str) -> Tree:
    """A tree of one errored leaf, which --resume owes again."""
    nowhere = Context(task=task, instruction="", observations=("",))
    node = Node((), (), Moment(copies=(nowhere,)))
    after = reached(node, 0, {}, {})
    response = Response(UNSAID, Reply(text=""), error=why)
    steps = Steps()
    step = as_step(node, response, after, {}, Outcome.ERRORED)
    steps.keep(after.lineage, step)
    kept = steps.in_order()
    ledger = Ledger()
    steps.charge(ledger)
    return Tree(
        task=task,
        instruction="",
        method=method,
        seed=seed,
        steps=kept,
        ledger=ledger,
    )
