"""Panels: which tasks a stage plays, in which order, always with a hash.

Also how an evaluation's panel overlaps with others and with the training tasks: a
success rate has another meaning if the model was trained on the tasks or their kind.
The model's history is read from manifests: each training names its trees and its
starting model. Runs that were moved since then are left out.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path

from agentcli.environments.protocol import Card, World
from agentcli.environments.registry import refuse_repeated, tasks_of
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed, read_json, read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.shards import Shard
from agentcli.records.training_settings import TINY
from agentcli.records.trees import RowHead, TreeHead
from agentcli.records.types import Panel, StageRecord, Task
from agentcli.registry import nearest


def make_panel(
    name: str,
    world: str,
    tasks: list[Task],
) -> Panel:
    """A panel and its hash."""
    sha256 = panel_hash(task.id for task in tasks)
    return Panel(name=name, world=world, tasks=tasks, sha256=sha256)


def panel_hash(tasks: Iterable[str]) -> str:
    """SHA-256 of the task ids joined by newlines."""
    return hashlib.sha256("\n".join(tasks).encode()).hexdigest()


def panel_for(world: World, settings: EnvironmentSettings) -> Panel:
    """The panel that the settings describe.

    It is a file or a split, narrowed by `where`, then cut after the first `tasks`.
    Raises DataError for a panel file that is damaged or from another world, UsageError
    if no task is left.
    """
    if settings.panel is not None:
        panel = read_panel(Path(settings.panel), world.card.name)
        name = panel.name
        tasks = panel.tasks
    else:
        name = settings.split or world.card.split
        tasks = tasks_of(world, settings.name, name)
    selected = _select(world, tasks, settings.where)[: settings.tasks]
    if not selected:
        raise UsageError(
            f"no task of {world.card.name} {name} is left by "
            f"{_narrowing(settings.where, tasks)}"
        )
    return make_panel(name, world.card.name, selected)


def _narrowing(where: dict[str, list[str]], tasks: Sequence[Task]) -> str:
    """The option that removed all tasks, and its possible values."""
    if not where:
        return "environment.options and --data; choose another --split, or widen them"
    conditions = []
    hint = "ask for fewer of these at once"
    for name, values in where.items():
        conditions.append(f"{name}={'|'.join(values)}")
        attributes = map(_attributes_of, tasks)
        known = sorted({one[name] for one in attributes if name in one})
        unknown = [value for value in values if value not in known]
        if len(unknown) == len(values):
            hint = f"{name}: {nearest(unknown[0], known)}"
    return f"--where {','.join(conditions)}; {hint}"


def parse_shard(text: str | None, name: str = "environment.shard") -> Shard | None:
    """Parses "3/8" as Shard(3, 8); None stays None. Raises UsageError naming `name`."""
    if text is None:
        return None
    index, _, count = text.partition("/")
    numbers = index.isdecimal() and count.isdecimal()
    if not numbers or not 1 <= int(index) <= int(count):
        raise UsageError(
            f"{name} is {text!r}; write I/N with I from 1 to N, for "
            "instance --shard 3/8"
        )
    return Shard(int(index), int(count))


def interleaved(parts: Sequence[Sequence[str]]) -> list[str]:
    """The task ids of a whole panel from its parts, which are in shard order."""
    # Shard I of N has tasks I, I + N, ...; late shards may have one task fewer.
    rounds = zip_longest(*parts)
    return [task for task in chain.from_iterable(rounds) if task is not None]


def read_panel(path: Path, world: str) -> Panel:
    """Reads a panel file.

    Raises DataError for a wrong hash, another world, and a task that is there twice.
    """
    panel = read_json(path, Panel)
    if panel_hash(task.id for task in panel.tasks) != panel.sha256:
        raise DataError(
            f"{path}: sha256: does not match its tasks; write it again with: agentcli "
            "env panel"
        )
    if panel.world != world:
        raise DataError(
            f"{path}: world: is {panel.world!r}, the command asks for {world!r}"
        )
    refuse_repeated(panel.tasks, f"{path}: tasks", DataError)
    return panel


def iteration_tasks(
    tasks: list[Task],
    per_step: int,
    iteration: int,
    seed: int,
) -> list[Task]:
    """The tasks of one iteration of `run`, without duplicates.

    In every pass the panel is shuffled again with a seed. Raises UsageError if it is
    smaller than one iteration.
    """
    if per_step > len(tasks):
        raise UsageError(
            f"rollout.tasks_per_step is {per_step}, but the panel has only "
            f"{len(tasks)} tasks"
        )
    # Tasks that do not fill a whole iteration are left out of that pass.
    lap, place = divmod(iteration, len(tasks) // per_step)
    order = list(tasks)
    random.Random(derive_seed(seed, "lap", lap)).shuffle(order)
    return order[place * per_step : (place + 1) * per_step]


def _attributes_of(task: Task) -> dict[str, str]:
    """The attributes for --where: kind, split, and those that the world adds."""
    return {"kind": task.kind, "split": task.split, **task.attributes}


def _select(
    world: World,
    tasks: Sequence[Task],
    where: dict[str, list[str]],
) -> list[Task]:
    """Keeps the tasks with one of the requested attribute values, in their order.

    A task without the attribute is left out. Raises UsageError if no task has an
    attribute that `where` names.
    """
    known: dict[str, str] = {}
    kept = []
    for task in tasks:
        attributes = _attributes_of(task)
        known |= attributes
        if all(attributes.get(name) in values for name, values in where.items()):
            kept.append(task)
    for name in where:
        if name not in known:
            raise UsageError(
                f"--where {name}: {world.card.name} has no such attribute; it has "
                f"{', '.join(known)}"
            )
    return kept


def training_overlaps(
    panel: Panel, split: str, card: Card, model: str | None
) -> Iterator[str]:
    """One line each on tasks and on kinds of tasks that the model was trained on.

    Kinds matter only in a split that is meant to test new ones.
    """
    trees = Counter[str]()
    tasks = set()
    for file in training_trees(model):
        for head in read_records(file, TreeHead):
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
    own_words = False
    for stage, record in _trainings(model):
        tiny = record.settings.get("sft", {}).get("model") == TINY
        names = record.settings.get("prompt", {}).get("names", "own")
        own_words |= stage == "sft" and tiny and names == "own"
    if own_words and split in card.new_kinds:
        yield (
            f"a tiny policy knows only words that it was trained on: those of the "
            f"unseen rooms and tasks of {split} mean nothing to it"
        )


def panel_overlaps(panels: Mapping[str, set[str]]) -> Iterator[str]:
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
            rows = read_records(summary.with_suffix(".jsonl"), RowHead)
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
        # A run that took another's name may lead back here.
        if run in past:
            break
        past.add(run)
        model = None
        stages = RunDirectory(run).load_manifest().stages
        # Of a run that has both, the training ran last.
        for name, section in (("train", "policy"), ("sft", "sft")):
            if name in stages:
                yield name, stages[name]
                model = stages[name].settings.get(section, {}).get("model")
                break
