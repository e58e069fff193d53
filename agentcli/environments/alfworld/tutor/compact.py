"""A whole decision in 50 to 60 words, for policies too small to read the papers'
prompt.

The same information, drawn from the agent's own observations, the task sentence and
what is admissible now: the task; what was done; where relevant things were seen; the
last step; what is seen now; where the agent is and what it holds; places to go to: new,
old, and old ones that are shut; what else can be done here. Articles go, entities stay
whole ("fridge 1" is one token of a tiny tokenizer), and look, inventory, help, examine
and slice are left out. So are takes of things that the task does not ask for: `now`
names them.
"""

from functools import lru_cache

from agentcli.environments.alfworld.goal import Goal
from agentcli.environments.alfworld.names import type_of
from agentcli.environments.alfworld.tutor.knowledge import (
    Knowledge,
    goal_of,
    know,
    parse,
)
from agentcli.environments.protocol import Context

HIDDEN = ("go to ", "examine ", "slice ", "look", "inventory", "help")
"""Beginnings of actions that are not listed as local ones."""
FOUND = 3
"""At most so many sightings of relevant things."""


def compact(context: Context) -> str:
    """One line per kind of information, words separated by blanks; lines that would be
    empty are left out.
    """
    goal = goal_of(context)
    known = know(context)
    targets = [
        action[6:] for action in context.admissible if action.startswith("go to ")
    ]
    lines = [
        (
            "task",
            context.instruction.rstrip(".").lower().removeprefix("your task is to: "),
        ),
        ("did", " ".join(f"{verb} {thing}" for verb, thing in known.done)),
        ("found", _found(known, goal)),
        ("last", _last(context, goal)),
        ("now", _brief(context.observations[-1])),
        ("at", f"{known.at or 'middle'} hold {known.holding or 'nothing'}"),
        ("new", " ".join(place for place in targets if place not in known.visited)),
        (
            "old",
            " ".join(
                place
                for place in targets
                if place in known.visited and place not in known.shut
            ),
        ),
        (
            "shut",
            " ".join(
                place
                for place in targets
                if place in known.visited and place in known.shut
            ),
        ),
        ("can", _local(context.admissible, goal)),
    ]
    return "\n".join(f"{label} {text}" for label, text in lines if text)


def _found(known: Knowledge, goal: Goal) -> str:
    """Where the task's objects and lamp were last seen; what already lies in a goal
    receptacle first.
    """
    kinds = (
        (goal.object, goal.place)
        if goal.kind == "look_at_obj_in_light"
        else (goal.object,)
    )
    sightings = [sighting for kind in kinds for sighting in known.holds(kind)]
    sightings.sort(key=lambda sighting: type_of(sighting[1]) != goal.place)
    return " ".join(f"{thing} {place}" for thing, place in sightings[:FOUND])


def _last(context: Context, goal: Goal) -> str:
    """The step before: what was observed (only relevant things of a list) > what was
    done.
    """
    if not context.actions:
        return ""
    return (
        f"{_brief(context.observations[-2], goal)} > {context.actions[-1] or 'nothing'}"
    )


def _local(admissible: tuple[str, ...], goal: Goal) -> str:
    shown = [action for action in admissible if not action.startswith(HIDDEN)]
    return " , ".join(
        action
        for action in shown
        if not action.startswith("take ") or action.startswith(f"take {goal.object} ")
    )


@lru_cache(maxsize=65536)
def _brief(text: str, goal: Goal | None = None) -> str:
    """One observation without articles: `countertop 1 has apple 1 mug 2`. With a goal,
    only its things are listed.
    """
    said = []
    for event, place, things in parse(text):
        if event in ("room", "facing", "arrive"):
            continue
        if event == "see":
            relevant = (
                things
                if goal is None
                else [t for t in things if type_of(t) in (goal.object, goal.place)]
            )
            rest = "other" if things else "empty"
            said.append(
                f"{place} has {' '.join(relevant)}" if relevant else f"{place} {rest}"
            )
        elif event == "closed":
            said.append(f"{place} closed")
        elif event == "idle":
            said.append("nothing happens")
        elif event != "open":
            said.append(" ".join([event, *things]))
    return " ".join(said) or ("start" if parse(text) else "other")
