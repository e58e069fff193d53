"""The rules of Sokoban, and its levels, which are drawn by playing backwards.

The signs of the text grid are those of gym-sokoban. Boxes start on their targets and
are pulled away, so every level can be solved. The level's own digest says which split
it belongs to, so no two splits share a level.
"""

import random
from collections import deque
from functools import lru_cache
from typing import Annotated

import msgspec

from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.worlds.generated import Number, SplitSizes, split_number

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
        return self.boxes <= self.targets

    @property
    def boxes_home(self) -> int:
        return len(self.boxes & self.targets)

    def blocks(self, cell: Cell) -> bool:
        return cell in self.walls or cell in self.boxes

    def with_pieces(self, player: Cell, boxes: frozenset[Cell]) -> "Position":
        return Position(self.size, self.walls, self.targets, player, boxes)

    def moved(self, action: str) -> "Position":
        """The position after an action; the same object where nothing moves."""
        step = MOVES[action]
        ahead = beside(self.player, step)
        # The same object, so that a caller sees by `is` that nothing moved.
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
    came_from: dict[Position, tuple[Position, str]] = {start: (start, "")}
    queue = deque([start])
    # Without a bound, a position that cannot be won costs the whole state space.
    while queue and len(came_from) < MOST_STATES:
        here = queue.popleft()
        if here.is_solved:
            actions = []
            while here is not start:
                here, action = came_from[here]
                actions.append(action)
            return tuple(reversed(actions))
        for action in MOVES:
            after = here.moved(action)
            if after not in came_from:
                came_from[after] = here, action
                queue.append(after)
    return None


SPLITS = {"train": range(0, 80), "valid": range(80, 90), "test": range(90, 100)}
"""Split -> the levels that it holds, by their digest modulo 100."""
PATIENCE = 2000
"""Levels drawn before the options are refused."""

Length = Annotated[int, msgspec.Meta(ge=1, le=200)]


class SokobanOptions(msgspec.Struct, kw_only=True, frozen=True):
    """environment.options of Sokoban."""

    size: Annotated[int, msgspec.Meta(ge=5, le=12)] = 6
    """Rows and columns, the outer walls included."""
    boxes: Annotated[int, msgspec.Meta(ge=1, le=4)] = 1
    blocks: Number = 2
    """Walls inside the room."""
    shortest: Length = 4
    longest: Length = 15
    """Fewest and most actions that the best solution takes."""
    levels: SplitSizes = SplitSizes()
    seed: Number = 0
    pictures: bool = False
    """Whether the room is shown as a picture, and not in signs."""
    pixels: Annotated[int, msgspec.Meta(ge=6, le=64)] = 8
    """Pixels a cell, across and down; gym-sokoban has 16."""

    def __post_init__(self) -> None:
        if self.shortest > self.longest:
            raise ValueError(
                f"shortest: {self.shortest} is more than longest, {self.longest}; "
                "lower it, or raise longest"
            )

    def digest(self) -> str:
        """The part of a task's id that names the options its level was drawn under."""
        # How many levels there are, and how they are shown, changes no level.
        names = ("size", "boxes", "blocks", "shortest", "longest", "seed")
        return "-".join(str(getattr(self, name)) for name in names)


@lru_cache(maxsize=4096)
def draw_level(options: SokobanOptions, split: str, index: int) -> Position:
    """The level of a task, the same for ever.

    Raises UsageError for options under which none can be drawn.
    """
    rng = random.Random(derive_seed("sokoban", options.seed, split, index))
    for _ in range(PATIENCE):
        level = _pulled_apart(options, rng)
        number = split_number(level.draw())
        # A box that is still on a target would make part of the level trivial.
        if number not in SPLITS[split] or level.boxes & level.targets:
            continue
        solution = solve(level)
        if solution and options.shortest <= len(solution) <= options.longest:
            return level
    raise UsageError(
        f"task {options.digest()}/{split}/{index}: environment.options: of {PATIENCE} "
        f"levels of size {options.size} with {options.boxes} boxes and "
        f"{options.blocks} blocks none is solved in {options.shortest} to "
        f"{options.longest} actions; lower shortest, boxes or blocks, or raise longest"
    )


def _pulled_apart(options: SokobanOptions, rng: random.Random) -> Position:
    """A room with its boxes pulled away from the targets by a random walk."""
    size = options.size
    border = set()
    inside = []
    for row in range(size):
        for column in range(size):
            if {row, column} & {0, size - 1}:
                border.add((row, column))
            else:
                inside.append((row, column))
    rng.shuffle(inside)
    blocks = inside[: options.blocks]
    free = inside[options.blocks :]
    if len(free) <= options.boxes:
        raise UsageError(
            f"environment.options.blocks: {options.blocks} leave no room for boxes "
            f"and player in size {size}"
        )
    targets = frozenset(free[: options.boxes])
    position = Position(
        size=size,
        walls=frozenset(border.union(blocks)),
        targets=targets,
        player=free[options.boxes],
        boxes=targets,
    )
    # Pulls are more frequent than bare steps, or boxes would stay near their targets.
    for _ in range(rng.randint(size, 12 * size)):
        step = MOVES[rng.choice(tuple(MOVES))]
        position = _pulled(position, step, pulls=rng.random() < 0.7)
    return position


def _pulled(position: Position, step: Cell, pulls: bool) -> Position:
    """One step backwards: the player walks, and may pull the box behind it."""
    player = position.player
    ahead = beside(player, step)
    if position.blocks(ahead):
        return position
    down, right = step
    behind = beside(player, (-down, -right))
    boxes = position.boxes
    if pulls and behind in boxes:
        boxes = boxes - {behind} | {player}
    return position.with_pieces(ahead, boxes)
