"""MiniGrid and BabyAI as text, and BabyAI's bot as an expert; see minigrid.yaml."""

from typing import Any

from minigrid.core.constants import (
    IDX_TO_COLOR,
    IDX_TO_OBJECT,
    OBJECT_TO_IDX,
    STATE_TO_IDX,
)
from minigrid.utils.baby_ai_bot import BabyAIBot

STATES = {number: name for name, number in STATE_TO_IDX.items()}
NOTHING = {OBJECT_TO_IDX[name] for name in ("unseen", "empty", "floor")}
MOST_STEPS = 64


def text(observation: dict[str, Any], info: dict[str, Any]) -> str:
    """The mission, what is carried, and all that is seen, from the agent's place.

    The picture has 7 x 7 cells of three numbers: object, colour, state. The agent
    stands in the middle of the last row and looks along the column.
    """
    seen = observation["image"]
    columns, rows, _ = seen.shape
    middle, last = columns // 2, rows - 1
    things = []
    for ahead in range(rows):
        for column in range(columns):
            cell = seen[column, last - ahead]
            if (column, ahead) == (middle, 0) or cell[0] in NOTHING:
                continue
            side = column - middle
            way = f" {'right' if side > 0 else 'left'} {abs(side)}" if side else ""
            # Walls matter only where they bar the way.
            if IDX_TO_OBJECT[cell[0]] != "wall" or abs(side) + ahead == 1 or not side:
                things.append(f"{_name(cell)} ahead {ahead}{way}")
    held = _name(seen[middle, last]) if seen[middle, last][0] not in NOTHING else ""
    lines = [observation["mission"], f"carrying {held or 'nothing'}", *things]
    return "\n".join(lines)


def _name(cell: Any) -> str:
    """Such as "red ball", "locked blue door", or "wall"."""
    kind = IDX_TO_OBJECT[cell[0]]
    if kind == "wall":
        return kind
    state = f"{STATES[cell[2]]} " if kind == "door" else ""
    return f"{state}{IDX_TO_COLOR[cell[1]]} {kind}"


def plan(environment: Any) -> list[str]:
    """The actions of BabyAI's bot from here. It is given a copy, in which it acts."""
    bot = BabyAIBot(environment)
    actions = []
    action = None
    while len(actions) < MOST_STEPS:
        action = bot.replan(action)
        actions.append(action.name)
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            break
    return actions
