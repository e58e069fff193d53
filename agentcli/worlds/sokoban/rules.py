"""The rules of Sokoban: what a move does, the grid as text, and how to win.

The signs are those of gym-sokoban.
"""

from collections import deque
from functools import lru_cache

import msgspec

WALL, FLOOR, TARGET, BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET = "#_OX√PS"
MOST_STATES = 200_000
"""States that a search visits before it gives up."""

Cell = tuple[int, int]
"""Row and column; of a step: rows down and columns right."""
MOVES: dict[str, Cell] = {
    "up": (-1, 0),
    "down": (1, 0),
    "left": (0, -1),
    "right": (0, 1),
}


class Position(msgspec.Struct, frozen=True):
    """A room, and where the player and the boxes are in it."""

    size: int
    walls: frozenset[Cell]
    targets: frozenset[Cell]
    player: Cell
    boxes: frozenset[Cell]

    @property
    def is_solved(self) -> bool:
        """Whether every box stands on a target."""
        return self.boxes <= self.targets

    @property
    def boxes_home(self) -> int:
        """Number of boxes that stand on a target."""
        return len(self.boxes & self.targets)

    def blocks(self, cell: Cell) -> bool:
        """Whether a wall or a box is in the way."""
        return cell in self.walls or cell in self.boxes

    def with_pieces(self, player: Cell, boxes: frozenset[Cell]) -> "Position":
        """The same room with the pieces elsewhere."""
        return Position(self.size, self.walls, self.targets, player, boxes)

    def moved(self, action: str) -> "Position":
        """The position after an action; the same object where nothing moves."""
        step = MOVES[action]
        ahead = beside(self.player, step)
        if ahead in self.walls:
            return self
        boxes = self.boxes
        # One box can be pushed, two cannot.
        if ahead in boxes:
            behind = beside(ahead, step)
            if self.blocks(behind):
                return self
            boxes = boxes - {ahead} | {behind}
        return self.with_pieces(ahead, boxes)

    def possible(self) -> tuple[str, ...]:
        """The actions that move something."""
        return tuple(action for action in MOVES if self.moved(action) is not self)

    def draw(self) -> str:
        """The grid as text: one line a row, signs apart."""
        columns = range(self.size)
        rows = []
        for row in range(self.size):
            rows.append(" ".join(self._sign((row, column)) for column in columns))
        return "\n".join(rows)

    def _sign(self, cell: Cell) -> str:
        if cell in self.walls:
            return WALL
        on_target = cell in self.targets
        if cell in self.boxes:
            return BOX_ON_TARGET if on_target else BOX
        if cell == self.player:
            return PLAYER_ON_TARGET if on_target else PLAYER
        return TARGET if on_target else FLOOR


def beside(cell: Cell, step: Cell) -> Cell:
    """The cell that a step leads to."""
    row, column = cell
    down, right = step
    return row + down, column + right


def read(text: str) -> Position:
    """The position that `draw` wrote."""
    lines = [line.split() for line in text.split("\n")]

    def cells(signs: str) -> frozenset[Cell]:
        marked = set()
        for row, line in enumerate(lines):
            for column, sign in enumerate(line):
                if sign in signs:
                    marked.add((row, column))
        return frozenset(marked)

    (player,) = cells(PLAYER + PLAYER_ON_TARGET)
    return Position(
        size=len(lines),
        walls=cells(WALL),
        targets=cells(TARGET + BOX_ON_TARGET + PLAYER_ON_TARGET),
        player=player,
        boxes=cells(BOX + BOX_ON_TARGET),
    )


@lru_cache(maxsize=65536)
def solve(start: Position) -> tuple[str, ...] | None:
    """The fewest actions that solve a position, by breadth-first search.

    None when there are none, or none was met in MOST_STATES.
    """
    came_from: dict[Position, tuple[Position, str]] = {}
    reached = {start}
    queue = deque([start])
    while queue and len(reached) < MOST_STATES:
        here = queue.popleft()
        if here.is_solved:
            actions = []
            while here is not start:
                here, action = came_from[here]
                actions.append(action)
            return tuple(reversed(actions))
        for action in MOVES:
            after = here.moved(action)
            if after not in reached:
                reached.add(after)
                came_from[after] = here, action
                queue.append(after)
    return None
