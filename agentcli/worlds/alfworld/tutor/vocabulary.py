"""The entity names that games can show, for a tiny tokenizer that has a token for each.

For generated games the set is closed over the rooms in force: as many receptacles of a
type as the fullest room has, and as many objects of a type as the generator may place.
For a real data set it is read from the games' own problems.
"""

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.records.regular import read_regular
from agentcli.worlds.alfworld import dataset
from agentcli.worlds.alfworld.draw import scenes
from agentcli.worlds.alfworld.layouts import room
from agentcli.worlds.alfworld.names import display_names
from agentcli.worlds.alfworld.options import OFFICIAL_GAMES, AlfworldOptions


class _Problem(msgspec.Struct):
    pddl_problem: str


_PROBLEM = msgspec.json.Decoder(_Problem)
_DECLARED = re.compile(r"^\s*(\w+_bar_\w+) - (?:object|receptacle)\s*$", re.MULTILINE)


def entities(options: AlfworldOptions, data: Path | None) -> list[str]:
    """All receptacle and object names with their numbers, sorted.

    `data` names a real data set to read instead.
    """
    return sorted(_of_data(data) if data else _of_rooms(options))


def _of_rooms(options: AlfworldOptions) -> set[str]:
    most: Counter[str] = Counter()
    for split in OFFICIAL_GAMES:
        for scene in scenes(options, split):
            here = room(scene)
            instances = options.distractor_instances + 1
            most |= Counter(here.types)
            most |= Counter(dict.fromkeys(here.objects, instances))
            most |= Counter({"DeskLamp": int(here.lamp)})
    names = set()
    for kind, count in most.items():
        for number in range(1, count + 1):
            names.add(f"{kind.lower()} {number}")
    return names


@lru_cache(maxsize=4)
def _of_data(data: Path) -> set[str]:
    names: set[str] = set()
    for split in OFFICIAL_GAMES:
        for task_id in dataset.list_games(data, split):
            content = read_regular(dataset.game_file(data, task_id))
            problem = _PROBLEM.decode(content).pddl_problem
            names.update(display_names(_DECLARED.findall(problem)).values())
    return names
