"""One tree in the form of a page: its steps, and a row for the list of trees.

Texts are stored as places in the tree's table. -1 stands for no text or no step.
"""

from collections.abc import Callable, Sequence

import msgspec

from agentcli.analysis.page.accounts import MethodColumn
from agentcli.analysis.page.graphs import PlacedGraph
from agentcli.analysis.page.texts import (
    NO_TEXT,
    PromptPart,
    TextTable,
    TokenEnds,
    visible,
)
from agentcli.evaluation.episodes import ending, episodes
from agentcli.records.siblings import named_action
from agentcli.records.trees import children, paths
from agentcli.records.types import Ledger, Move, Outcome, Step, Tree, Validity
from agentcli.reports.show.trees import leaves_below

NO_STEP = -1
START = -2
"""Stands for the initial state where a step is named."""
LOGPROB_DIGITS = 4
PictureNumbers = Callable[[Sequence[str]], list[int]]
"""The numbers of pictures, by name, in the page."""
LETTERS = {
    Outcome.SUCCESS: "s",
    Outcome.FAILURE: "f",
    Outcome.TRUNCATED: "t",
    Outcome.ERRORED: "e",
}
"""A letter for each outcome, so that one word lists all outcomes of a tree."""


class MoveCells(msgspec.Struct, kw_only=True, array_like=True):
    """One move of a step in several copies of the environment."""

    copy: int
    action: int
    validity: str
    next_observation: int
    outcome: str | None


class StepCells(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One step; default values are left out."""

    parent: int = NO_STEP
    prompt: PromptPart
    continues: bool = False
    """Whether the prompt is only what was added to the conversation of the parent."""
    response: int
    observation: int
    pictures: list[int] = []
    """Of the observation; numbers in the page's album, as are the next ones."""
    next_observation: int
    next_pictures: list[int] = []
    action: int
    tag: int = NO_TEXT
    validity: str = Validity.VALID
    outcome: str | None = None
    ending: str | None = None
    error: int = NO_TEXT
    mask: int = NO_TEXT
    admissible: list[int] = []
    moves: list[MoveCells] = []
    reward: float = 0.0
    value: float | None = None
    score: float | None = None
    notes: list[tuple[str, float | str]] = []
    tokens: int = 0
    surprises: list[float] = []
    """-log p of each token, in nats."""
    token_ends: list[int] = []
    """Where each token ends in the response; empty where that is not known."""
    stop: str = ""
    redrawn: int = 0
    back: int = NO_STEP
    """The nearest earlier step with the same resulting state; START: the initial state.
    """
    leaves: int = 1
    success: int = 0


class PageTree(msgspec.Struct, kw_only=True):
    """One tree with its credit."""

    task: str
    kind: str
    instruction: str
    method: str
    ledger: Ledger
    steps: list[StepCells]
    texts: list[str]
    credit: list[MethodColumn]
    graph: PlacedGraph | None


class TreeLine(msgspec.Struct, kw_only=True, array_like=True):
    """One tree in the list of trees."""

    source: int
    line: int
    task: str
    kind: str
    instruction: str
    outcomes: str
    """A letter of LETTERS for each leaf."""
    endings: list[str]
    steps: int
    forks: int
    tokens: int
    repeated: float
    """Share of the moves."""
    invalid: int
    """Steps that were malformed or inadmissible."""
    surprise: float | None
    """Mean -log p of a token, in nats."""
    low: float | None
    """Least and largest advantage of the first method."""
    high: float | None
    block: int = 0
    place: int = 0


def page_tree(
    tree: Tree,
    texts: TextTable,
    credit: list[MethodColumn],
    graph: PlacedGraph | None,
    token_ends: TokenEnds,
    numbers: PictureNumbers,
) -> PageTree:
    """The tree as the page holds it. `texts` holds those of its credit already."""
    cells: list[StepCells] = []
    prompts: list[str] = []
    for step in tree.steps:
        asked = [step.system or "", step.tools or "", step.prompt]
        prompts.append(visible("\n\n".join(filter(None, asked))))
        # A prompt repeats most of its parent's; only the rest is stored again.
        earlier = "" if step.parent is None else prompts[step.parent]
        part = texts.prompt(prompts[-1], earlier)
        cells.append(_cells(step, texts, part, token_ends, numbers))
    for trajectory in paths(tree):
        cells[trajectory[-1].id].ending = ending(trajectory)
    for cell, *counts in zip(cells, *leaves_below(tree), strict=True):
        cell.leaves, cell.success = counts
    _find_returns(tree, cells)
    return PageTree(
        task=visible(tree.task.id),
        kind=visible(tree.task.kind),
        instruction=visible(tree.instruction),
        method=visible(tree.method),
        ledger=tree.ledger,
        steps=cells,
        texts=texts.texts,
        credit=credit,
        graph=graph,
    )


def _cells(
    step: Step,
    texts: TextTable,
    prompt: PromptPart,
    token_ends: TokenEnds,
    numbers: PictureNumbers,
) -> StepCells:
    return StepCells(
        parent=NO_STEP if step.parent is None else step.parent,
        prompt=prompt,
        continues=bool(step.continues),
        response=texts.place(step.response),
        observation=texts.place(step.observation),
        pictures=numbers(step.pictures or ()),
        next_observation=texts.place(step.next_observation),
        next_pictures=numbers(step.next_pictures or ()),
        action=texts.place(named_action(step)),
        tag=texts.place(step.tag),
        validity=step.validity,
        outcome=step.outcome,
        error=texts.place(step.error),
        mask=texts.place(step.mask),
        admissible=[texts.place(action) for action in step.admissible],
        moves=[_move(move, texts) for move in step.moves],
        reward=step.reward,
        value=step.value,
        # The page knows only null, where a step leaves its score unset.
        score=step.score if isinstance(step.score, float) else None,
        tokens=step.tokens,
        surprises=[round(-value, LOGPROB_DIGITS) for value in step.logprobs],
        token_ends=token_ends(step),
        stop=step.stop,
        notes=_notes(step),
        redrawn=step.redrawn,
    )


def _notes(step: Step) -> list[tuple[str, float | str]]:
    """What the exploration method recorded, made visible."""
    notes: list[tuple[str, float | str]] = []
    for name, note in step.notes.items():
        shown = visible(note) if isinstance(note, str) else note
        notes.append((visible(name), shown))
    return notes


def _move(move: Move, texts: TextTable) -> MoveCells:
    return MoveCells(
        copy=move.copy,
        action=texts.place(move.action),
        validity=move.validity,
        next_observation=texts.place(move.next_observation),
        outcome=move.outcome,
    )


def _find_returns(tree: Tree, cells: Sequence[StepCells]) -> None:
    """Finds the steps that lead back to a state of their own trajectory."""
    if not all(step.state for step in tree.steps):
        return  # Without states, none is known to return.
    below = children(tree)
    waiting = below.get(None, [])[::-1]
    trajectory: list[Step] = []
    visits: dict[str, list[int]] = {}
    """The steps of the trajectory by the state that they led to."""
    while waiting:
        step = waiting.pop()
        # A state that another branch visited is not a return.
        while trajectory and trajectory[-1].id != step.parent:
            visits[trajectory.pop().next_state].pop()
        first = trajectory[0] if trajectory else step
        earlier = visits.setdefault(step.next_state, [])
        if earlier:
            cells[step.id].back = earlier[-1]
        # No step led to the initial state, so `visits` lacks it.
        elif first.state == step.next_state:
            cells[step.id].back = START
        earlier.append(step.id)
        trajectory.append(step)
        waiting += below.get(step.id, [])[::-1]


def tree_line(
    source: int, line: int, tree: Tree, credit: Sequence[MethodColumn]
) -> TreeLine:
    """The row of a tree; its place in the page is filled in later."""
    leaves = [step for step in tree.steps if step.outcome is not None]
    counted = list(episodes(tree))
    moves = sum(one.moves or 0 for one in counted)
    repeated = sum(one.repetitive_steps for one in counted)
    surprises = [-value for step in tree.steps for value in step.logprobs]
    given: list[float] = []
    if credit:
        given = [value for value in credit[0].advantages if value is not None]
    return TreeLine(
        source=source,
        line=line,
        task=visible(tree.task.id),
        kind=visible(tree.task.kind),
        instruction=visible(tree.instruction),
        outcomes="".join(LETTERS[leaf.outcome] for leaf in leaves if leaf.outcome),
        endings=[ending(trajectory) for trajectory in paths(tree)],
        steps=tree.ledger.steps,
        forks=tree.ledger.forks,
        tokens=tree.ledger.generated_tokens,
        repeated=repeated / max(1, moves),
        invalid=sum(step.validity is not Validity.VALID for step in tree.steps),
        surprise=sum(surprises) / len(surprises) if surprises else None,
        low=min(given, default=None),
        high=max(given, default=None),
    )
