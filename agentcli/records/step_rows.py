"""The steps of trees as flat rows: the columns of data frames and exported tables."""

from collections.abc import Iterable

import msgspec

from agentcli.records.grouping import grouped
from agentcli.records.trees import depths, leaves
from agentcli.records.types import Credit, Step, StepCredit, Tree


class StepRow(msgspec.Struct, kw_only=True):
    """One step of a tree; the fields are the columns, in this order."""

    tree: int
    """Number of the tree, from 1: its line in the file, as in `agentcli show RUN TREE`.
    """
    task: str
    kind: str
    trajectory: int
    """Number of the trajectory, from 1, as in `agentcli show --trajectory`.

    For a step that several trajectories share, it is the first of them.
    """
    step: int
    """Its position in the tree."""
    parent: int | None
    """The step before it; None for the first step of a trajectory."""
    depth: int
    """How many steps come before it."""
    prompt: str
    response: str
    tag: str | None
    """Reasoning tag of the response: think, explore, ..."""
    action: str | None
    """None if no action can be read from the response, or if it acts in several copies.
    """
    validity: str
    observation: str
    """What the policy saw before acting."""
    next_observation: str
    """The observation that the action returned."""
    reward: float
    """The world's own reward for this step."""
    outcome: str | None
    """How the trajectory ended, on its last step; None on other steps."""
    tokens: int
    """Tokens of the response."""
    advantage: float | None = None
    """None if no credit file is given, or none is assigned to this step."""
    pictures: list[str] = []
    """Names of the pictures that the policy saw: files of RUN/pictures."""
    continues: str | None = None
    """Set where the prompt is only what was added to a conversation: what was said
    before is in the rows of the steps before it. None: the prompt is whole, but for
    `system` and `tools`.
    """
    role: str = "user"
    """Who speaks the prompt: user, or tool for what a call returned."""
    system: str | None = None
    """The system message before the prompt, where a conversation begins with one."""
    tools: str | None = None
    """The schemas of the tools, as JSON, where a conversation begins that calls some."""


def mean_advantage(rows: Iterable[StepCredit]) -> float | None:
    """The weighted mean advantage of one step's credit rows; None if none is assigned."""
    assigned = [row for row in rows if row.advantage is not None]
    weight = sum(row.weight for row in assigned)
    if not weight:
        return None
    return sum(row.weight * (row.advantage or 0.0) for row in assigned) / weight


def advantages(credit: Credit) -> dict[int, float | None]:
    """The advantage of every step in the credit, by step."""
    by_step = rows_by_step(credit)
    return {step: mean_advantage(rows) for step, rows in by_step.items()}


def rows_by_step(credit: Credit) -> dict[int, list[StepCredit]]:
    """The rows of every step in the credit, by step."""
    return grouped((row.step, row) for row in credit.steps)


def step_rows(number: int, tree: Tree, credit: Credit | None = None) -> list[StepRow]:
    """Every step of a tree once, in order; `number` is the number of the tree."""
    assigned = advantages(credit) if credit is not None else {}
    numbers = first_trajectories(tree)
    rows = []
    for step, depth in zip(tree.steps, depths(tree), strict=True):
        row = step_row(number, tree, step, numbers[step.id], depth)
        row.advantage = assigned.get(step.id)
        rows.append(row)
    return rows


def step_row(
    number: int, tree: Tree, step: Step, trajectory: int, depth: int
) -> StepRow:
    """One step as a row, without its advantage."""
    return StepRow(
        tree=number,
        task=tree.task.id,
        kind=tree.task.kind,
        trajectory=trajectory,
        step=step.id,
        parent=step.parent,
        depth=depth,
        prompt=step.prompt,
        response=step.response,
        tag=step.tag,
        action=step.action,
        validity=step.validity.value,
        observation=step.observation,
        next_observation=step.next_observation,
        reward=step.reward,
        outcome=None if step.outcome is None else step.outcome.value,
        tokens=step.tokens,
        pictures=list(step.pictures or ()),
        continues=step.continues or None,
        role=step.role or "user",
        system=step.system or None,
        tools=step.tools or None,
    )


def first_trajectories(tree: Tree) -> dict[int, int]:
    """The number of the first trajectory that contains a step, from 1, by step."""
    numbers: dict[int, int] = {}
    for number, leaf in enumerate(leaves(tree), 1):
        step: Step | None = leaf
        while step is not None and step.id not in numbers:
            numbers[step.id] = number
            step = None if step.parent is None else tree.steps[step.parent]
    return numbers
