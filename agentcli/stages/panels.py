"""Which tasks a stage walks, in which order: a panel, always with its hash."""

import hashlib
import random
from pathlib import Path

from agentcli.environments.protocol import World, select
from agentcli.errors import DataError, UsageError
from agentcli.records.files import derive_seed, read_json
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Panel, Task


def make_panel(name: str, world: str, tasks: list[Task]) -> Panel:
    """A panel and its hash: sha256 of the task ids joined by newlines."""
    digest = hashlib.sha256("\n".join(task.id for task in tasks).encode()).hexdigest()
    return Panel(name=name, world=world, tasks=tasks, sha256=digest)


def panel_for(world: World, settings: EnvironmentSettings) -> Panel:
    """The panel that settings name: a file or a split, narrowed by `where`, then its first `tasks`.

    Raises DataError for a panel file that is damaged or of another world, UsageError when no task is left.
    """
    if settings.panel is not None:
        panel = read_panel(Path(settings.panel), world.card.name)
        name, tasks = panel.name, panel.tasks
    else:
        name, tasks = settings.split, world.tasks(settings.split)
    tasks = select(world, tasks, settings.where)[: settings.tasks]
    if not tasks:
        narrowed = ",".join(f"{key}={'|'.join(values)}" for key, values in settings.where.items())
        why = f"by --where {narrowed}" if narrowed else "by environment.options"
        raise UsageError(
            f"no task of {world.card.name} {name} is left {why}; `agentcli env panel` shows what another choice leaves"
        )
    return make_panel(name, world.card.name, tasks)


def read_panel(path: Path, world: str) -> Panel:
    """A panel file whose hash matches and whose world is the one asked for. Raises DataError."""
    panel = read_json(path, Panel)
    if make_panel(panel.name, panel.world, panel.tasks).sha256 != panel.sha256:
        raise DataError(f"{path}: sha256: does not match its tasks; write it again with: agentcli env panel")
    if panel.world != world:
        raise DataError(f"{path}: world: is {panel.world!r}, the command asks for {world!r}")
    return panel


def iteration_tasks(tasks: list[Task], per_step: int, iteration: int, seed: int) -> list[Task]:
    """The tasks of one iteration of `run`: the panel is walked in a fresh seeded order each time round, no task twice in
    one iteration. Raises UsageError when the panel is smaller than one iteration."""
    if per_step > len(tasks):
        raise UsageError(f"rollout.tasks_per_step is {per_step}, but the panel has only {len(tasks)} tasks")
    lap, place = divmod(iteration, len(tasks) // per_step)
    order = list(tasks)
    random.Random(derive_seed(seed, "lap", lap)).shuffle(order)
    return order[place * per_step : (place + 1) * per_step]
