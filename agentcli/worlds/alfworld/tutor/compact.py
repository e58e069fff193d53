"""A whole decision in 50 to 60 words, for policies too small for the papers' prompt.

The information is the same, drawn from the agent's own observations, the task sentence
and what is admissible now. Articles go; entities stay whole ("fridge 1" is one token of
a tiny tokenizer). Look, inventory, help, examine and slice are left out, and so are
takes of things that the task does not ask for: `now` names them.
"""

from functools import lru_cache

from agentcli.environments.protocol import Context
from agentcli.worlds.alfworld.goal import Goal
from agentcli.worlds.alfworld.names import type_of
from agentcli.worlds.alfworld.tutor.knowledge import (
    Knowledge,
    goal_of,
    know,
    parse,
)

HIDDEN = ("go to ", "examine ", "slice ", "look", "inventory", "help")
"""Beginnings of actions that are not listed as local ones."""
SIGHTINGS = 3
"""The most sightings of relevant things."""


def compact(context: Context) -> str:
    """One line per kind of information; lines that would be empty are left out."""
    goal = goal_of(context)
    known = know(context)
    sentence = context.instruction.rstrip(".").lower()
    new = []
    old = []
    shut = []
    for action in context.admissible:
        if action.startswith("go to "):
            place = action.removeprefix("go to ")
            if place not in known.visited:
                new.append(place)
            elif place in known.shut:
                shut.append(place)
            else:
                old.append(place)
    lines = {
        "task": sentence.removeprefix("your task is to: "),
        "did": " ".join(f"{verb} {thing}" for verb, thing in known.done),
        "found": _sightings(known, goal),
        "last": _last(context, goal),
        "now": _brief(context.observations[-1]),
        "at": f"{known.at or 'middle'} hold {known.holding or 'nothing'}",
        "new": " ".join(new),
        "old": " ".join(old),
        "shut": " ".join(shut),
        "can": _local(context.admissible, goal),
    }
    return "\n".join(f"{label} {text}" for label, text in lines.items() if text)


def _sightings(known: Knowledge, goal: Goal) -> str:
    """Where the task's objects and lamp were last seen."""
    sightings = known.sightings(goal.object)
    if goal.kind == "look_at_obj_in_light":
        sightings += known.sightings(goal.place)
    # What already lies in a goal receptacle comes first.
    sightings.sort(key=lambda sighting: type_of(sighting[1]) != goal.place)
    return " ".join(f"{thing} {place}" for thing, place in sightings[:SIGHTINGS])


def _last(context: Context, goal: Goal) -> str:
    """The step before, as "observation > action"; other objects are left out."""
    if not context.actions:
        return ""
    before = _brief(context.observations[-2], goal)
    return f"{before} > {context.actions[-1] or 'nothing'}"


def _local(admissible: tuple[str, ...], goal: Goal) -> str:
    actions = []
    for action in admissible:
        takes = action.startswith("take ")
        useful = not takes or action.startswith(f"take {goal.object} ")
        if useful and not action.startswith(HIDDEN):
            actions.append(action)
    return " , ".join(actions)


@lru_cache(maxsize=65536)
def _brief(text: str, goal: Goal | None = None) -> str:
    """One observation without articles: `countertop 1 has apple 1 mug 2`.

    With a goal, only its things are listed. A text that says where the agent is and no
    more becomes "start"; one that cannot be parsed becomes "other".
    """
    events = parse(text)
    phrases = []
    for event, place, things in events:
        if event == "see":
            phrases.append(f"{place} {_contents(things, goal)}")
        elif event == "closed":
            phrases.append(f"{place} closed")
        elif event == "idle":
            phrases.append("nothing happens")
        elif event not in ("room", "facing", "arrive", "open"):
            phrases.append(" ".join([event, *things]))
    return " ".join(phrases) or ("start" if events else "other")


def _contents(things: tuple[str, ...], goal: Goal | None) -> str:
    if not things:
        return "empty"
    if goal:
        kinds = (goal.object, goal.place)
        things = tuple(thing for thing in things if type_of(thing) in kinds)
    return f"has {' '.join(things)}" if things else "other"
