"""The rules of Sokoban: what a move does, the grid as text, and how to win.

The signs are those of gym-sokoban.
"""

from collections import deque
from functools import lru_cache

import msgspec

WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "#_OX√PS"
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""Action -> rows down and columns right."""
MOST_STATES = 200_000
"""States that a search visits before it gives up."""

Cell = tuple[int, int]
"""Row and column."""


class Warehouse(msgspec.Struct, frozen=True):
    """The walls and targets of a level."""

    size: int
    walls: frozenset[Cell]
    targets: frozenset[Cell]


class Pieces(msgspec.Struct, frozen=True):
    """Where the player and the boxes are."""

    player: Cell
    boxes: frozenset[Cell]


def beside(cell: Cell, step: tuple[int, int]) -> Cell:
    """The cell that a step leads to."""
    return cell[0] + step[0], cell[1] + step[1]


def moved(
    room: Warehouse,
    position: Pieces,
    action: str,
) -> Pieces:
    """The position after an action; the same object where nothing moves."""
    step = MOVES[action]
    ahead = beside(position.player, step)
    if ahead in room.walls:
        return position
    if ahead not in position.boxes:
        return Pieces(ahead, position.boxes)
    behind = beside(ahead, step)
    if behind in room.walls or behind in position.boxes:
        return position
    return Pieces(ahead, position.boxes - {ahead} | {behind})


def is_solved(room: Warehouse, position: Pieces) -> bool:
    """Whether every box stands on a target."""
    return position.boxes <= room.targets


def possible(room: Warehouse, position: Pieces) -> tuple[str, ...]:
    """The actions that move something."""
    return tuple(
        action for action in MOVES if moved(room, position, action) is not position
    )


def draw(room: Warehouse, position: Pieces) -> str:
    """The grid as text: one line a row, signs apart."""
    rows = []
    for row in range(room.size):
        signs = [_sign(room, position, (row, column)) for column in range(room.size)]
        rows.append(" ".join(signs))
    return "\n".join(rows)


def _sign(
    room: Warehouse,
    position: Pieces,
    cell: Cell,
) -> str:
    if cell in room.walls:
        return WALL
    on_target = cell in room.targets
    if cell in position.boxes:
        return BOX_ON_TARGET if on_target else BOX
    if cell == position.player:
        return PLAYER_ON_TARGET if on_target else PLAYER
    return TARGET if on_target else FLOOR


def read(text: str) -> tuple[Warehouse, Pieces]:
    """The room and the position that `draw` wrote."""
    lines = [line.split() for line in text.split("\n")]

    def cells(signs: str) -> frozenset[Cell]:
        marked = set()
        for row, line in enumerate(lines):
            for column, sign in enumerate(line):
                if sign in signs:
                    marked.add((row, column))
        return frozenset(marked)

    targets = cells(TARGET + BOX_ON_TARGET + PLAYER_ON_TARGET)
    (player,) = cells(PLAYER + PLAYER_ON_TARGET)
    room = Warehouse(len(lines), cells(WALL), targets)
    return room, Pieces(player, cells(BOX + BOX_ON_TARGET))


@lru_cache(maxsize=65536)
def solve(room: Warehouse, position: Pieces) -> tuple[str, ...] | None:
    """The fewest actions that solve it, by breadth-first search.

    None when there are none, or none was met in MOST_STATES.
    """
    came_from: dict[Pieces, tuple[Pieces, str] | None] = {position: None}
    queue = deque([position])
    while queue and len(came_from) < MOST_STATES:
        here = queue.popleft()
        if is_solved(room, here):
            return _way(came_from, here)
        for action in MOVES:
            after = moved(room, here, action)
            if after not in came_from:
                came_from[after] = here, action
                queue.append(after)
    return None


def _way(
    came_from: dict[Pieces, tuple[Pieces, str] | None], end: Pieces
) -> tuple[str, ...]:
    actions = []
    step = came_from[end]
    while step is not None:
        before, action = step
        actions.append(action)
        step = came_from[before]
    return tuple(reversed(actions))
