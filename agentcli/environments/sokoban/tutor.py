"""Sokoban for policies from scratch: a short prompt, and an expert with a fault."""

import random

import msgspec

from agentcli.environments.protocol import (
    FINISHED,
    Advice,
    Context,
)
from agentcli.environments.sokoban.rules import (
    MOVES,
    WALL,
    Cell,
    Pieces,
    Warehouse,
    beside,
    moved,
    possible,
    read,
    solve,
)
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.settings import Share

BOXES_SHOWN = 2
"""Boxes that the prompt tells of, the nearest ones."""


class SokobanHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The fault that the expert has on purpose."""

    overlook: Share = 0.0
    """Share of positions in which it takes any action that moves something, and not the
    plan's.
    """


def last_grid(context: Context) -> str:
    """The last grid that was seen.

    After a response that could not be read the agent sees words, and nothing has moved.
    """
    return next(
        text for text in reversed(context.observations) if text.startswith(WALL)
    )


def compact(context: Context) -> str:
    """Where boxes lie from the player, targets from the boxes, and what is around."""
    room, position = read(last_grid(context))
    player = position.player
    free_targets = room.targets - position.boxes
    lines = []
    for box in _by_distance(player, position.boxes - room.targets)[:BOXES_SHOWN]:
        target = _by_distance(box, free_targets)[0]
        lines.append(f"box {_offset(player, box)} goal {_offset(box, target)}")
        lines.append(f"around {_around(room, position, box)}")
    lines.append(f"you {_around(room, position, player)}")
    if context.actions:
        lines.append(f"last {context.actions[-1] or 'nothing'}")
    else:
        lines.append("start")
    return "\n".join(lines)


def vocabulary(size: int) -> list[str]:
    """Directions with their lengths, as whole tokens."""
    return sorted(f"{name} {length}" for name in MOVES for length in range(1, size))


def advise(
    context: Context,
    seed: int,
    habits: SokobanHabits,
) -> Advice:
    """The plan's next action, read off the grid that the agent sees."""
    text = last_grid(context)
    room, position = read(text)
    actions = possible(room, position)
    solution = solve(room, position)
    if not solution:
        # A box is stuck: nothing is left to do although the episode goes on.
        return Advice("think", FINISHED, actions[0] if actions else "up")
    if derive_seed("overlook", seed, text) < habits.overlook * 2.0**64:
        rng = random.Random(derive_seed("stray", seed, text))
        return Advice("explore", "try", rng.choice(actions))
    return Advice("think", _intention(room, position, solution), solution[0])


def _intention(
    room: Warehouse,
    position: Pieces,
    solution: tuple[str, ...],
) -> str:
    """The plan's next push, and where to stand for it: "push right stand down 2"."""
    here = position
    for action in solution:
        after = moved(room, here, action)
        if after.boxes != here.boxes:
            stand = _offset(position.player, here.player) or "here"
            return f"push {action} stand {stand}"
        here = after
    raise EngineError("a plan that pushes no box solves nothing")


def _by_distance(start: Cell, cells: frozenset[Cell]) -> list[Cell]:
    """The nearest cell first; ties by row and column."""
    return sorted(
        cells,
        key=lambda cell: (abs(cell[0] - start[0]) + abs(cell[1] - start[1]), cell),
    )


def _offset(start: Cell, end: Cell) -> str:
    """How to get from one cell to another, e.g. "down 2 left 1"."""
    down = end[0] - start[0]
    right = end[1] - start[1]
    parts = []
    if down:
        parts.append(f"{'down' if down > 0 else 'up'} {abs(down)}")
    if right:
        parts.append(f"{'right' if right > 0 else 'left'} {abs(right)}")
    return " ".join(parts)


def _around(
    room: Warehouse,
    position: Pieces,
    cell: Cell,
) -> str:
    """What lies on the four sides of a cell, in words."""
    words = []
    for name, step in MOVES.items():
        side = beside(cell, step)
        if side in room.walls:
            words.append(f"{name} wall")
        elif side in position.boxes:
            words.append(f"{name} box")
        elif side in room.targets:
            words.append(f"{name} goal")
        else:
            words.append(f"{name} floor")
    return " ".join(words)
