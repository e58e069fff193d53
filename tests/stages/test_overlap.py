"""What an evaluation says of a panel that lies in another, or that was trained on."""

from pathlib import Path

import msgspec
from agentcli.environments.protocol import Card
from agentcli.records.files import RecordWriter, write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Task
from agentcli.stages.panels import make_panel, panel_overlaps, panels_of, training_overlaps
from evaluated import episodes
from sample_records import stage_record

CARD = Card(name="rooms", role="You walk.", splits=("L0", "L2"), evaluation_split="L0", new_kinds=("L2",))


def task(number: int, kind: str = "walk") -> Task:
    return Task(id=f"t{number}", world="rooms", split="train", kind=kind)


def trained(run: Path, model: str | None, tasks: list[Task]) -> str:
    """The checkpoint of a run whose training read trees of these tasks, and began with `model`."""
    run.mkdir()
    trees = run / "trees.jsonl"
    trees.write_bytes(b"".join(msgspec.json.encode({"task": one}) + b"\n" for one in tasks))
    record = stage_record()
    record.inputs = {str(trees): "0" * 64}
    record.settings = {"policy": {"model": model}}
    RunDirectory(run).record_stage("train", record)
    return str(run / "checkpoint")


def evaluated(run: Path, label: str, tasks: str) -> None:
    """An evaluation of these tasks, a letter each."""
    file = RunDirectory(run).evaluation(label)
    file.parent.mkdir(parents=True, exist_ok=True)
    with RecordWriter(file) as writer:
        for row in episodes(dict.fromkeys(tasks, "+")):
            writer.write(row)
    write_json(file.with_suffix(".json"), {})


def test_a_panel_in_another_is_named_with_it() -> None:
    (line,) = panel_overlaps({"L1": {"a", "b", "c"}, "L2": {"a", "b"}})
    assert line.startswith("L2 ")
    assert {"L1:", "2"} <= set(line.split())


def test_panels_that_are_equal_or_share_a_part_are_not() -> None:
    assert list(panel_overlaps({"greedy": {"a", "b"}, "sampled": {"a", "b"}, "L1": {"b", "c"}})) == []


def test_the_panels_of_a_run_are_those_of_its_sound_files(tmp_path: Path) -> None:
    evaluated(tmp_path, "L1", "abc")
    evaluated(tmp_path, "L2", "ab")
    RunDirectory(tmp_path).evaluation("L0").with_suffix(".json").write_text("{}")
    assert panels_of(tmp_path) == {"L1": {"a", "b", "c"}, "L2": {"a", "b"}}


def test_tasks_that_were_trained_on_are_counted_through_all_trainings(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", None, [task(1)])
    second = trained(tmp_path / "second", first, [task(2)])
    panel = make_panel("L0", "rooms", [task(1), task(2), task(3)])
    (line,) = training_overlaps(panel, "L0", CARD, second)
    assert line.startswith("2 of 3 ")
    assert "t1" in line


def test_kinds_that_were_trained_on_count_in_a_split_for_new_ones_only(tmp_path: Path) -> None:
    model = trained(tmp_path / "x", None, [task(1, "walk"), task(2, "run")])
    panel = make_panel("L2", "rooms", [task(8, "run"), task(9, "sit")])
    (line,) = training_overlaps(panel, "L2", CARD, model)
    assert "1 of 2 trees" in line
    assert line.endswith("run")
    assert list(training_overlaps(panel, "L0", CARD, model)) == []


def test_a_model_that_began_with_itself_or_with_none_ends_the_search(tmp_path: Path) -> None:
    panel = make_panel("L0", "rooms", [task(3)])
    turning = trained(tmp_path / "x", str(tmp_path / "x/checkpoint"), [task(1)])
    assert list(training_overlaps(panel, "L0", CARD, turning)) == []
    assert list(training_overlaps(panel, "L0", CARD, None)) == []
    assert list(training_overlaps(panel, "L0", CARD, "somebody/model")) == []


def test_a_policy_from_scratch_does_not_know_the_words_of_new_kinds(tmp_path: Path) -> None:
    made = trained(tmp_path / "made", None, [task(1, "walk")])
    record = stage_record()
    record.settings = {"sft": {"model": "tiny"}}
    RunDirectory(tmp_path / "sft").path.mkdir()
    RunDirectory(tmp_path / "sft").record_stage("sft", record)
    grown = trained(tmp_path / "grown", str(tmp_path / "sft/checkpoint"), [task(1, "walk")])
    panel = make_panel("L2", "rooms", [task(9, "sit")])
    assert list(training_overlaps(panel, "L2", CARD, made)) == []
    (line,) = training_overlaps(panel, "L2", CARD, grown)
    assert "tiny" in line
    assert list(training_overlaps(panel, "L0", CARD, grown)) == []
