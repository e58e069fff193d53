"""The overlap of an evaluation's panel with other panels and with the training tasks.

A success rate has another meaning if the model was trained on the tasks or their kind.
The model's history is read from manifests: each training names its trees and its
starting model. Runs that were moved since then are left out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from agentcli.environments.protocol import Card
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.files import read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.training_settings import TINY
from agentcli.records.types import Panel, StageRecord, Task


class _TaskOfTree(msgspec.Struct):
    """The part of a tree that names its task."""

    task: Task


class _TaskOfEpisode(msgspec.Struct):
    """The part of an episode that names its task."""

    task: str


def of_training(
    panel: Panel, split: str, card: Card, model: str | None
) -> Iterator[str]:
    """One line each on tasks and on kinds of tasks that the model was trained on.

    Kinds matter only in a split that is meant to test new ones.
    """
    trees = Counter[str]()
    tasks = set()
    for file in training_trees(model):
        for head in read_records(file, _TaskOfTree):
            trees[head.task.kind] += 1
            tasks.add(head.task.id)
    met = [task.id for task in panel.tasks if task.id in tasks]
    if met:
        yield (
            f"{len(met)} of {len(panel.tasks)} tasks were trained on, first "
            f"{shown(met[0])}"
        )
    kinds = sorted({task.kind for task in panel.tasks if task.kind in trees})
    if kinds and split in card.new_kinds:
        count = sum(trees[kind] for kind in kinds)
        yield (
            f"{split} is meant for kinds of tasks that were not trained on, but "
            f"{count} of {trees.total()} trees were of {shown(', '.join(kinds))}"
        )
    made = any(
        stage == "sft" and record.settings.get("sft", {}).get("model") == TINY
        for stage, record in _trainings(model)
    )
    if made and split in card.new_kinds:
        yield (
            f"a tiny policy knows only words that it was trained on: those of the "
            f"unseen rooms and tasks of {split} mean nothing to it"
        )


def of_panels(panels: Mapping[str, set[str]]) -> Iterator[str]:
    """One line for each panel that is part of another; `panels` has tasks by label."""
    for label, tasks in panels.items():
        wholes = [name for name, whole in panels.items() if tasks < whole]
        if wholes:
            yield (
                f"{label} is a part of {wholes[0]}: all of its {len(tasks)} tasks are "
                "there too"
            )


def panels_of(run: Path) -> dict[str, set[str]]:
    """The tasks of a run's finished evaluations, by label."""
    panels = {}
    for summary in sorted((run / "evaluation").glob("*.json")):
        # A damaged file is refused by the commands that need it.
        with suppress(DataError):
            rows = read_records(summary.with_suffix(".jsonl"), _TaskOfEpisode)
            panels[summary.stem] = {row.task for row in rows}
    return panels


def training_trees(model: str | None) -> list[Path]:
    """The trees that a model, and the models it was trained from, were trained on."""
    files: dict[Path, None] = {}
    for _, record in _trainings(model):
        sources = [Path(path) for path in record.inputs]
        trees = [path for path in sources if path.name.startswith("trees.jsonl")]
        files.update(dict.fromkeys(path for path in trees if is_there(path)))
    return list(files)


def _trainings(model: str | None) -> Iterator[tuple[str, StageRecord]]:
    """The trainings that a model comes from, the last one first, by stage."""
    past: set[Path] = set()
    while model is not None:
        run = Path(model).resolve().parent
        if run in past:
            break
        past.add(run)
        model = None
        stages = RunDirectory(run).load_manifest().stages
        for name, section in (("train", "policy"), ("sft", "sft")):
            if name in stages:
                yield name, stages[name]
                model = stages[name].settings.get(section, {}).get("model")
                break
