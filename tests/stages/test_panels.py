"""Panels: fixed order, hashes, narrowing, and the slices that iterations take."""

from pathlib import Path

import msgspec
from agentcli.environments.protocol import Card
from agentcli.records.files import write_json
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.stages.panels import iteration_tasks, make_panel, panel_for
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused

ROOM = {"room": "hall"}


class Rooms:
    """A world that lists tasks and nothing else."""

    card = Card(name="rooms", role="You walk.", splits=("L0", "L1"), evaluation_split="L0")

    def tasks(self, split: str) -> list[Task]:
        kinds = ["walk", "run", "sit"]
        return [
            Task(id=f"{split}/{n}", world="rooms", split=split, kind=kinds[n % 3], attributes=ROOM if n % 2 else {})
            for n in range(9)
        ]


def test_a_panel_is_a_split_narrowed_and_cut() -> None:
    panel = panel_for(Rooms(), EnvironmentSettings(split="L0", where={"kind": ["run", "sit"]}, tasks=3))
    assert [task.id for task in panel.tasks] == ["L0/1", "L0/2", "L0/4"]
    assert panel.name == "L0"


def test_the_hash_is_that_of_the_ids_in_order() -> None:
    tasks = Rooms().tasks("L0")
    assert make_panel("a", "rooms", tasks).sha256 == make_panel("b", "rooms", tasks).sha256
    assert make_panel("a", "rooms", tasks).sha256 != make_panel("a", "rooms", tasks[::-1]).sha256


def test_tasks_without_an_attribute_are_left_out_where_others_have_it() -> None:
    panel = panel_for(Rooms(), EnvironmentSettings(split="L0", where={"room": ["hall"]}))
    assert [task.id for task in panel.tasks] == ["L0/1", "L0/3", "L0/5", "L0/7"]


def test_nothing_left_and_unknown_attributes_are_refused() -> None:
    refused(lambda: panel_for(Rooms(), EnvironmentSettings(split="L0", where={"kind": ["fly"]})), names="L0")
    refused(lambda: panel_for(Rooms(), EnvironmentSettings(split="L0", where={"room": ["hell"]})), remedy="hall")
    refused(lambda: panel_for(Rooms(), EnvironmentSettings(split="L0", where={"colour": ["red"]})), names="--where")


def test_a_panel_file_is_read_back_and_a_changed_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "panel.json"
    panel = panel_for(Rooms(), EnvironmentSettings(split="L1", tasks=4))
    write_json(path, panel)
    assert panel_for(Rooms(), EnvironmentSettings(panel=str(path))) == panel
    write_json(path, msgspec.structs.replace(panel, tasks=panel.tasks[1:]))
    refused(lambda: panel_for(Rooms(), EnvironmentSettings(panel=str(path))), 3, names="sha256")
    write_json(path, msgspec.structs.replace(panel, world="other"))
    refused(lambda: panel_for(Rooms(), EnvironmentSettings(panel=str(path))), 3, names=("world", "other"))


def test_a_panel_file_with_a_task_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "panel.json"
    tasks = Rooms().tasks("L0")
    write_json(path, make_panel("mine", "rooms", [*tasks, tasks[3], tasks[1]]))
    refused(lambda: panel_for(Rooms(), EnvironmentSettings(panel=str(path))), 3, names=(path.name, "'L0/3'"))


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 40), st.integers(0, 3))
def test_iterations_walk_the_panel_without_repeating_a_task(
    count: int, per_step: int, iteration: int, seed: int
) -> None:
    tasks = [Task(id=str(n), world="w", split="s", kind="k") for n in range(count)]
    if per_step > count:
        refused(lambda: iteration_tasks(tasks, per_step, iteration, seed), names="tasks_per_step")
        return
    chosen = iteration_tasks(tasks, per_step, iteration, seed)
    assert len({task.id for task in chosen}) == per_step
    laps = count // per_step
    first = iteration - iteration % laps
    lap = [task.id for i in range(first, first + laps) for task in iteration_tasks(tasks, per_step, i, seed)]
    assert len(lap) == len(set(lap)) == laps * per_step
