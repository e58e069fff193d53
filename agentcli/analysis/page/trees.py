"""One tree in the form of a page: its steps, its credit, its state graph, and its row in the list.

Texts are stored as places in the tree's table. -1 stands for no text or no step. From
row to row of credit, the lines of an account differ in little but their numbers, and
rows share their groups: lines and groups are stored once, and rows refer to them. In
the graph a state stands in the column of its distance from the start. Within a column
states are ordered by their neighbours, so that few edges cross.
"""

from collections.abc import Callable, Sequence

import msgspec
import networkx

from agentcli.analysis.page.texts import (
    NO_TEXT,
    PromptPart,
    TextTable,
    TokenEnds,
    visible,
)
from agentcli.credit.equations import Line, ScoreGroup
from agentcli.credit.explain import REASONS, account_of
from agentcli.credit.graph import STATE, StateGraph
from agentcli.credit.registry import Explainer
from agentcli.credit.survey import Explained
from agentcli.evaluation.episodes import ending, episodes
from agentcli.records.siblings import named_action
from agentcli.records.step_rows import advantages
from agentcli.records.trees import children, paths
from agentcli.records.types import (
    Credit,
    Ledger,
    Move,
    Outcome,
    Step,
    StepCredit,
    Tree,
    Validity,
)
from agentcli.reports.show.trees import leaves_below

MemberCells = tuple[int, float, float]
"""Step (or copy), score and weight."""
AccountEntry = list[float]
"""For a line: its place and its value. For a group: -1 minus its place, and the places
of the row's members in it.
"""


class AccountLine(msgspec.Struct, array_like=True, frozen=True):
    """A line without its number."""

    name: str
    formula: str | None
    meaning: int
    source: str | None


class AccountGroup(msgspec.Struct, kw_only=True):
    """A group that scores are compared with."""

    name: str
    meaning: int
    of: str
    how: str
    mean: float
    std: float | None
    weight: float
    members: list[MemberCells]


class CreditRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One row of credit; a step may have several."""

    advantage: float | None
    weight: float = 1.0
    masked: int = NO_TEXT
    parts: list[tuple[str, float]] = []
    """The parts of the advantage, if there is no account."""
    account: list[AccountEntry] = []


class MethodColumn(msgspec.Struct, kw_only=True):
    """What one method gives the steps of a tree."""

    method: str
    advantages: list[float | None]
    rows: dict[int, list[CreditRow]]
    """By step."""
    lines: list[AccountLine]
    groups: list[AccountGroup]


def method_column(
    tree: Tree,
    credit: Credit,
    switches: msgspec.Struct,
    explainer: Explainer | None,
    texts: TextTable,
) -> MethodColumn:
    """The credit of one method, with accounts where there is an `explainer`."""
    column = MethodColumn(
        method=credit.method, advantages=[], rows={}, lines=[], groups=[]
    )
    given = advantages(credit)
    column.advantages = [given.get(step.id) for step in tree.steps]
    shared = _SharedLines(column, texts)
    evidence: Explained = {}
    if explainer is not None:
        evidence = explainer.explained(tree, switches, range(len(credit.steps)))
    for number, entry in enumerate(credit.steps):
        row = CreditRow(advantage=entry.advantage, weight=entry.weight)
        if explainer is not None:
            account = account_of(switches, entry, explainer, evidence[number])
            row.account = [shared.entry(one) for one in account]
        if not row.account:
            row.parts = list(entry.parts.items())
        row.masked = texts.place(_reason(entry))
        column.rows.setdefault(entry.step, []).append(row)
    return column


def _reason(entry: StepCredit) -> str | None:
    """Why a row has no advantage."""
    return None if entry.masked is None else REASONS.get(entry.masked, entry.masked)


class _SharedLines:
    """Lines and groups stored so far, so that each is stored only once."""

    def __init__(self, column: MethodColumn, texts: TextTable) -> None:
        self._column = column
        self._texts = texts
        self._lines: dict[AccountLine, int] = {}
        self._groups: dict[tuple[object, ...], int] = {}

    def entry(self, entry: Line | ScoreGroup) -> AccountEntry:
        if isinstance(entry, Line):
            return [self._line(entry), entry.value]
        places = [n for n, member in enumerate(entry.members) if member.explained]
        return [-1 - self._group(entry), *places]

    def _line(self, line: Line) -> int:
        meaning = self._texts.place(line.meaning)
        held = AccountLine(line.name, line.formula, meaning, line.source)
        place = self._lines.setdefault(held, len(self._lines))
        if place == len(self._column.lines):
            self._column.lines.append(held)
        return place

    def _group(self, group: ScoreGroup) -> int:
        members = [(one.step, one.score, one.weight) for one in group.members]
        key = (group.name, group.meaning, group.how, *members)
        place = self._groups.setdefault(key, len(self._groups))
        if place == len(self._column.groups):
            self._column.groups.append(
                AccountGroup(
                    name=group.name,
                    meaning=self._texts.place(group.meaning),
                    of=group.of,
                    how=group.how,
                    mean=group.mean,
                    std=group.std,
                    weight=group.weight,
                    members=members,
                )
            )
        return place


SWEEPS = 4
"""How often the columns are ordered by their neighbours, there and back."""


class PlacedState(msgspec.Struct, kw_only=True, array_like=True):
    """One state."""

    column: int
    row: int
    text: int
    kind: str
    visits: int
    value: float
    hops: float | None
    truncated: int
    action: int
    """An action that leads here; it serves as the state's name."""


class PlacedEdge(msgspec.Struct, kw_only=True, array_like=True):
    """One action between two states."""

    source: int
    target: int
    action: int
    count: int
    gain: float


class PlacedGraph(msgspec.Struct, kw_only=True):
    """A state graph; `sources` and `targets` are the states by step."""

    states: list[PlacedState]
    edges: list[PlacedEdge]
    sources: list[int]
    targets: list[int]


def placed_graph(tree: Tree, graph: StateGraph, texts: TextTable) -> PlacedGraph:
    """The graph with its states in columns."""
    columns = _columns(tree, graph)
    places = _places(graph, columns)
    actions: dict[int, str] = {}
    for edge in graph.edges:
        if edge.source != edge.target:
            actions.setdefault(edge.target, edge.action)
    states = []
    for number, node in enumerate(graph.nodes):
        column, row = places[number]
        text = node.key if node.kind == STATE else node.kind
        state = PlacedState(
            column=column,
            row=row,
            text=texts.place(text),
            kind=node.kind,
            visits=node.visits,
            value=node.value,
            hops=node.hops,
            truncated=node.truncated,
            action=texts.place(actions.get(number)),
        )
        states.append(state)
    edges = []
    for edge in graph.edges:
        placed = PlacedEdge(
            source=edge.source,
            target=edge.target,
            action=texts.place(edge.action),
            count=edge.count,
            gain=edge.gain,
        )
        edges.append(placed)
    return PlacedGraph(
        states=states, edges=edges, sources=graph.sources, targets=graph.targets
    )


def _columns(tree: Tree, graph: StateGraph) -> list[list[int]]:
    """The states by their distance from those in which the tree starts."""
    arrows: networkx.DiGraph[int] = networkx.DiGraph()
    arrows.add_nodes_from(range(len(graph.nodes)))
    arrows.add_edges_from((source, target) for source, target, _ in graph.counts)
    starts = []
    for step in tree.steps:
        if step.parent is None and graph.sources[step.id] >= 0:
            starts.append(graph.sources[step.id])
    if not starts:
        return []
    layers = networkx.bfs_layers(arrows, dict.fromkeys(starts))
    return [list(layer) for layer in layers]


def _places(graph: StateGraph, columns: list[list[int]]) -> dict[int, tuple[int, int]]:
    """The column of every state and its row there."""
    neighbours: dict[int, list[int]] = {
        number: [] for number in range(len(graph.nodes))
    }
    for source, target, _ in graph.counts:
        neighbours[source].append(target)
        neighbours[target].append(source)
    places: dict[int, tuple[int, int]] = dict.fromkeys(neighbours, (0, 0))
    for number, column in enumerate(columns):
        places |= {state: (number, row) for row, state in enumerate(column)}
    for sweep in range(SWEEPS):
        backwards = sweep % 2
        order = list(enumerate(columns))
        for number, column in reversed(order) if backwards else order:
            beside = number + 1 if backwards else number - 1
            heights = {}
            for row, state in enumerate(column):
                rows = [
                    places[one][1]
                    for one in neighbours[state]
                    if places[one][0] == beside
                ]
                heights[state] = sum(rows) / len(rows) if rows else row
            # The barycentre method: a state goes to the mean height of its neighbours.
            column.sort(key=heights.__getitem__)
            places |= {state: (number, row) for row, state in enumerate(column)}
    return places


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
