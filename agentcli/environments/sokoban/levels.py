"""The levels of Sokoban, drawn by playing backwards.

Boxes start on their targets and are pulled away, so every level can be solved. The
level's own digest says which split it belongs to, so no two splits share a level.
"""

import hashlib
import random
from functools import lru_cache
from typing import Annotated

import msgspec

from agentcli.environments.sokoban.rules import (
    MOVES,
    Pieces,
    Warehouse,
    beside,
    draw,
    solve,
)
from agentcli.errors import UsageError
from agentcli.records.files import derive_seed

SPLITS = {"train": range(0, 80), "valid": range(80, 90), "test": range(90, 100)}
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

    def digest(self) -> str:
        """The part of a task's id that names the options its level was drawn under."""
        return (
            f"{self.size}-{self.boxes}-{self.blocks}-{self.shortest}-{self.longest}"
            f"-{self.seed}"
        )


@lru_cache(maxsize=4096)
def draw_level(
    options: SokobanOptions,
    split: str,
    index: int,
) -> tuple[Warehouse, Pieces]:
    """The level of a task, the same for ever.

    Raises UsageError for options under which none can be drawn.
    """
    rng = random.Random(derive_seed("sokoban", options.seed, split, index))
    for _ in range(PATIENCE):
        room, position = _pulled_apart(options, rng)
        digest = hashlib.sha256(draw(room, position).encode()).digest()
        number = int.from_bytes(digest[:8], "big") % 100
        # A box that is still on a target would make part of the level trivial.
        if number not in SPLITS[split] or position.boxes & room.targets:
            continue
        solution = solve(room, position)
        if solution and options.shortest <= len(solution) <= options.longest:
            return room, position
    raise UsageError(
        f"environment.options: no level of size {options.size} with {options.boxes} "
        f"boxes and {options.blocks} blocks is solved in {options.shortest} to "
        f"{options.longest} actions; raise longest or size, or lower shortest, boxes "
        "or blocks"
    )


def _pulled_apart(
    options: SokobanOptions, rng: random.Random
) -> tuple[Warehouse, Pieces]:
    """A room with its boxes pulled away from the targets by a random walk."""
    size = options.size
    cells = {(row, column) for row in range(size) for column in range(size)}
    inner = range(1, size - 1)
    inside = [(row, column) for row in inner for column in inner]
    border = cells.difference(inside)
    rng.shuffle(inside)
    blocks = inside[: options.blocks]
    free = inside[options.blocks :]
    if len(free) <= options.boxes:
        raise UsageError(
            f"environment.options.blocks: {options.blocks} leave no room for boxes "
            f"and player in size {size}"
        )
    walls = frozenset(border.union(blocks))
    room = Warehouse(size, walls, targets=frozenset(free[: options.boxes]))
    position = Pieces(free[options.boxes], room.targets)
    for _ in range(rng.randint(size, 12 * size)):
        step = MOVES[rng.choice(tuple(MOVES))]
        position = _pulled(room, position, step, rng.random() < 0.7)
    return room, position


def _pulled(
    room: Warehouse,
    position: Pieces,
    step: tuple[int, int],
    pulls: bool,
) -> Pieces:
    """One step backwards: the player walks, and may pull the box behind it."""
    ahead = beside(position.player, step)
    if ahead in room.walls or ahead in position.boxes:
        return position
    behind = beside(position.player, (-step[0], -step[1]))
    if pulls and behind in position.boxes:
        return Pieces(ahead, position.boxes - {behind} | {position.player})
    return Pieces(ahead, position.boxes)
