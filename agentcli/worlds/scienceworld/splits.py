"""Which variations of which tasks a split holds.

The simulator cuts the variations of a task in order: half for training, a quarter each
for development and test. The levels are those of RLVMR, which SPARK and DPEPO use:
without the task use-thermometer, and with the development set as L0.
"""

from typing import Literal, NamedTuple

from agentcli.records.types import Task

Part = Literal["train", "dev", "test"]

VARIATIONS = {
    "boil": 30,
    "change-the-state-of-matter-of": 30,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "find-animal": 300,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "freeze": 30,
    "grow-fruit": 126,
    "grow-plant": 126,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "lifespan-longest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "lifespan-shortest-lived": 125,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "melt": 30,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "use-thermometer": 540,
}
"""Variations of each task, in the simulator's order."""
ALL = tuple(VARIATIONS)
LEVELLED = ALL[:-1]
"""The tasks of the levels."""
NEW = tuple(ALL[index] for index in (1, 4, 8, 11, 13, 16, 18, 21, 24, 28))
"""The tasks of L2."""
KNOWN = tuple(kind for kind in LEVELLED if kind not in NEW)


class Split(NamedTuple):
    """One part of the variations of some tasks."""

    parts: tuple[Part, ...]
    kinds: tuple[str, ...]


SPLITS = {
    "train": Split(("train",), LEVELLED),
    "L0-train": Split(("train",), LEVELLED),
    "L0": Split(("dev",), LEVELLED),
    "L1-train": Split(("train",), LEVELLED),
    "L1": Split(("test",), LEVELLED),
    "L2-train": Split(("train",), KNOWN),
    "L2": Split(("test",), NEW),
    "all": Split(("train", "dev", "test"), ALL),
}
MEANINGS = {
    "L0-train": "the same as train",
    "L1-train": "the same as train",
    "L0": "known tasks, the variations of the development set",
    "L1": "known tasks, the variations of the test set",
    "L2": "the part of L1 whose tasks L2-train lacks",
    "L2-train": "train without the tasks of L2",
    "all": "every variation of all 30 tasks, use-thermometer too",
}


def variations(kind: str, part: Part) -> range:
    """The variations of a task that belong to a part (PythonInterface.getSets).

    Every task has at least ten.
    """
    count = VARIATIONS[kind]
    quarter = count // 4
    bounds = {
        "train": (0, 2 * quarter),
        "dev": (2 * quarter, 3 * quarter),
        "test": (3 * quarter, min(count, 5 * quarter)),
    }
    return range(*bounds[part])


def tasks_of_split(split: str, world: str, prefix: str) -> list[Task]:
    """The tasks of a split: the first variation of each task, then the second.

    So a panel's first N hold all tasks. An id begins with `prefix`.
    """
    parts, kinds = SPLITS[split]
    ranked = []
    for kind in kinds:
        rank = 0
        for part in parts:
            for variation in variations(kind, part):
                task = Task(
                    id=f"{prefix}/{kind}/{variation}",
                    world=world,
                    split=part,
                    kind=kind,
                    attributes={"variation": str(variation)},
                )
                ranked.append((rank, task))
                rank += 1
    ranked.sort(key=lambda pair: pair[0])
    return [task for _, task in ranked]
