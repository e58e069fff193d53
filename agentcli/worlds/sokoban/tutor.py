"""Sokoban for policies from scratch: a short prompt, and an expert with a fault."""

import random
from collections.abc import Iterable

import msgspec

from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.section import Share
from agentcli.worlds.generated import strikes
from agentcli.worlds.sokoban.rules import (
    MOVES,
    WALL,
    Cell,
    Position,
    beside,
    read,
    solve,
)

BOXES_SHOWN = 2
"""Boxes that the prompt mentions, the nearest ones."""


class SokobanHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The fault that the expert has on purpose."""

    overlook: Share = 0.0
    """Share of positions in which it takes any action that moves something, and not the
    plan's.
    """


def last_grid(context: Context) -> str:
    """The last grid that was shown in signs.

    After a response that could not be read the agent sees words, and nothing has moved.
    """
    return next(
        text for text in reversed(context.observations) if text.startswith(WALL)
    )


def past(context: Context) -> str:
    """What was done last."""
    if context.actions:
        return f"last {context.actions[-1] or 'nothing'}"
    return "start"


def compact(context: Context) -> str:
    """Where boxes lie from the player, targets from the boxes, and what is around."""
    position = read(last_grid(context))
    player = position.player
    boxes = _by_distance(player, position.boxes - position.targets)
    lines = []
    for box in boxes[:BOXES_SHOWN]:
        target = _by_distance(box, position.targets - position.boxes)[0]
        lines.append(f"box {_offset(player, box)} goal {_offset(box, target)}")
        lines.append(f"around {_around(position, box)}")
    lines.append(f"you {_around(position, player)}")
    lines.append(past(context))
    return "\n".join(lines)


def vocabulary(size: int) -> list[str]:
    """Directions with their lengths, as whole tokens."""
    lengths = range(1, size)
    return sorted(f"{name} {length}" for name in MOVES for length in lengths)


def advise(grid: str, seed: int, habits: SokobanHabits) -> Advice:
    """The plan's next action, read off the grid that the agent sees."""
    position = read(grid)
    actions = position.possible()
    solution = solve(position)
    if not solution:
        # A box is stuck: nothing is left to do although the episode has not ended.
        return Advice("think", FINISHED, actions[0] if actions else "up")
    if strikes(habits.overlook, "overlook", seed, grid):
        rng = random.Random(derive_seed("stray", seed, grid))
        return Advice("explore", "try", rng.choice(actions))
    return Advice("think", _intention(position, solution), solution[0])


def describing(advice: Advice, grid: str) -> Advice:
    """The advice, after where things are: a picture does not say it in words."""
    if advice.sentence == FINISHED:
        return advice
    position = read(grid)
    player = position.player
    words = [f"you {_place(player)}"]
    boxes = _by_distance(player, position.boxes - position.targets)
    for box in boxes[:BOXES_SHOWN]:
        target = _by_distance(box, position.targets - position.boxes)[0]
        words.append(f"box {_place(box)} goal {_place(target)}")
    sentence = " ".join([*words, advice.sentence])
    return advice._replace(sentence=sentence)


def _place(cell: Cell) -> str:
    """Where a cell is: "row 2 column 3"."""
    row, column = cell
    return f"row {row} column {column}"


def _intention(position: Position, solution: tuple[str, ...]) -> str:
    """The plan's next push, and where to stand for it: "push right stand down 2"."""
    # The steps before the push only lead to the cell behind the box.
    here = position
    for action in solution:
        after = here.moved(action)
        if after.boxes != here.boxes:
            stand = _offset(position.player, here.player) or "here"
            return f"push {action} stand {stand}"
        here = after
    raise EngineError("a plan that pushes no box solves nothing")


def _by_distance(start: Cell, cells: Iterable[Cell]) -> list[Cell]:
    """The nearest cell first; ties by row and column."""
    row, column = start

    def distance(cell: Cell) -> int:
        return abs(cell[0] - row) + abs(cell[1] - column)

    return sorted(sorted(cells), key=distance)


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


def _around(position: Position, cell: Cell) -> str:
    """The four sides of a cell, in words."""
    words = []
    for name, step in MOVES.items():
        side = beside(cell, step)
        if side in position.walls:
            words.append(f"{name} wall")
        elif side in position.boxes:
            words.append(f"{name} box")
        elif side in position.targets:
            words.append(f"{name} goal")
        else:
            words.append(f"{name} floor")
    return " ".join(words)
