"""The levels of Sokoban, drawn by playing backwards.

Boxes start on their targets and are pulled away, so every level can be solved. The
level's own digest says which split it belongs to, so no two splits share a level.
"""

import random
from functools import lru_cache
from typing import Annotated

import msgspec

from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.worlds.generated import split_number
from agentcli.worlds.sokoban.rules import MOVES, Cell, Position, beside, solve

SPLITS = {
    "train": range(0, 80),
    "valid": range(80, 90),
    "test": range(90, 100),
}
"""Split -> the levels that it holds, by their digest modulo 100."""
PATIENCE = 2000
"""Levels drawn before the options are refused."""

Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Length = Annotated[int, msgspec.Meta(ge=1, le=200)]


class Levels(msgspec.Struct, kw_only=True, frozen=True):
    """Levels of each split."""

    train: Number = 2000
    valid: Number = 100
    test: Number = 200


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
    levels: Levels = Levels()
    seed: Number = 0
    pictures: bool = False
    """Whether the room is shown as a picture, and not in signs."""
    pixels: Annotated[int, msgspec.Meta(ge=6, le=64)] = 8
    """Pixels a cell, across and down; gym-sokoban has 16."""

    def digest(self) -> str:
        """The part of a task's id that names the options its level was drawn under."""
        shape = (
            self.size,
            self.boxes,
            self.blocks,
            self.shortest,
            self.longest,
            self.seed,
        )
        return "-".join(map(str, shape))


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
        f"environment.options: no level of size {options.size} with {options.boxes} "
        f"boxes and {options.blocks} blocks is solved in {options.shortest} to "
        f"{options.longest} actions; raise longest or size, or lower shortest, boxes "
        "or blocks"
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
