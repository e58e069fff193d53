"""JSON Schemas of all records, and the check of whole files: kind, count, and file:line: field of a fault."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentcli.errors import DataError, UsageError
from agentcli.records import types
from agentcli.records.files import RecordWriter, write_json
from agentcli.records.types import Credit, Episode, Ledger, Manifest, Outcome, Record, Step, StepCredit, Task, Tree
from agentcli.stages.panels import make_panel
from agentcli.stages.schema import json_schema, kind_of, schemas, validate
from agentcli.training.metrics import SftMetrics, TrainMetrics

TASK = Task(id="t", world="w", split="train", kind="k")


def tree(**fields: Any) -> Tree:
    step = Step(
        id=0,
        parent=None,
        prompt="p",
        response="r",
        observation="o",
        state="s",
        next_state="s",
        next_observation="o",
        outcome=Outcome.SUCCESS,
    )
    return Tree(task=TASK, instruction="", method="chain", seed=0, ledger=Ledger(), **{"steps": [step], **fields})


def damaged(**fields: Any) -> Tree:
    good = tree()
    return tree(steps=[msgspec.structs.replace(good.steps[0], **fields)])


EPISODE = Episode(
    task="t",
    kind="k",
    sample=0,
    outcome=Outcome.FAILURE,
    score=0.0,
    steps=1,
    tokens=0,
    repetitive_steps=0,
    explore_steps=0,
    malformed_steps=0,
    inadmissible_steps=0,
)
CREDIT = Credit(task="t", method="grpo", steps=[StepCredit(step=0, advantage=1.0)])


def metrics(kind: type[Any]) -> Any:
    """A metrics line in which every figure is 1."""
    names = [field.name for field in msgspec.structs.fields(kind) if field.name != "schema_version"]
    return kind(**dict.fromkeys(names, 1))


def write(path: Path, *records: Any) -> Path:
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path


def test_every_record_type_has_a_name() -> None:
    records = {
        kind
        for kind in vars(types).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Record
    }
    assert records <= set(schemas().values())


@pytest.mark.parametrize("name", schemas())
def test_a_schema_says_what_the_type_says(name: str) -> None:
    schema, kind = json_schema(name), schemas()[name]
    body = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    fields = msgspec.structs.fields(kind)
    assert set(body["properties"]) == {field.name for field in fields}
    assert set(body["required"]) == {field.name for field in fields if field.required}
    assert body["additionalProperties"] is False


def test_an_unknown_schema_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no schema 'episod'; did you mean episode\?"):
        json_schema("episod")


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("trees.jsonl", [tree(), tree()]),
        ("trees.jsonl.zst", [tree(), tree(), tree()]),
        ("credit/grpo.jsonl", [CREDIT]),
        ("evaluation/L0.jsonl", [EPISODE] * 4),
        ("metrics.jsonl", [metrics(TrainMetrics)]),
        ("metrics.jsonl", [metrics(SftMetrics)] * 2),
    ],
)
def test_files_of_a_run_are_known_by_their_place(name: str, records: list[Any], tmp_path: Path) -> None:
    assert validate(write(tmp_path / name, *records)) == len(records)


def test_single_records_and_settings(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", Manifest())
    write_json(tmp_path / "l2.json", make_panel("L2", "w", [TASK]))
    write_json(tmp_path / "one.json", tree())
    (tmp_path / "s.yaml").write_text("rollout: {leaves: 3}\n", encoding="utf-8")
    assert validate(tmp_path / "manifest.json") == 1
    assert validate(tmp_path / "l2.json") == 1
    assert validate(tmp_path / "one.json", "tree") == 1
    assert validate(tmp_path / "s.yaml") == 1


@pytest.mark.parametrize(
    ("name", "records", "message"),
    [
        ("trees.jsonl", [tree(), damaged(id=7)], ":2: task t: steps[0].id: is 7"),
        ("trees.jsonl.zst", [damaged(outcome=None)], ":1: task t: steps[0].outcome: a leaf has no outcome"),
        ("trees.jsonl", [tree(), EPISODE], ":2: Expected `object`, got `str` - at `$.task`"),
        ("credit/grpo.jsonl", [CREDIT, EPISODE], ":2: Object contains unknown field `kind`"),
        ("evaluation/L0.jsonl", [EPISODE, {**msgspec.to_builtins(EPISODE), "steps": "x"}], ":2: Expected `int`"),
        ("metrics.jsonl", [metrics(SftMetrics), metrics(TrainMetrics)], ":2: Object contains unknown field"),
        ("trees.jsonl", [], ": holds no complete record"),
    ],
)
def test_the_first_fault_is_named(name: str, records: list[Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, *records)
    with pytest.raises(DataError) as caught:
        validate(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_torn_last_line_is_owed_but_a_torn_middle_line_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "trees.jsonl", tree(), tree())
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert validate(path) == 1
    path.write_bytes(whole[:50] + b"\n" + whole)
    with pytest.raises(DataError, match=":1: "):
        validate(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rollout: {leavs: 3}", ": no setting 'rollout.leavs'; did you mean rollout.leaves?"),
        ("seed: 1\nseed: 2", ":2: key 'seed' is there twice"),
        ("rollout: {leaves: 0}", ": rollout.leaves: "),
        ("credit: {method: grpo, gama: 1}", ": credit.gama: grpo has no such switch"),
    ],
)
def test_faults_in_settings_are_bad_data(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        validate(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_panel_must_match_its_hash_and_a_single_tree_its_rules(tmp_path: Path) -> None:
    panel = make_panel("L2", "w", [TASK])
    write_json(tmp_path / "l2.json", msgspec.structs.replace(panel, sha256="0"))
    write_json(tmp_path / "one.json", damaged(reward=1e30))
    with pytest.raises(DataError, match=r"l2\.json: sha256: does not match"):
        validate(tmp_path / "l2.json")
    with pytest.raises(DataError, match=r"one.json: task t: steps\[0\].reward"):
        validate(tmp_path / "one.json", "tree")


def test_damaged_compression_and_unreadable_files_are_bad_data(tmp_path: Path) -> None:
    path = tmp_path / "trees.jsonl.zst"
    path.write_bytes(b"no zstd frame")
    with pytest.raises(DataError, match=r"trees\.jsonl\.zst: damaged compressed data"):
        validate(path)
    for name, kind in [("none.jsonl", "tree"), ("none.json", "panel"), ("none.yaml", "settings")]:
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            validate(tmp_path / name, kind)
    with pytest.raises(DataError, match="cannot be read"):
        validate(tmp_path, "tree")


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("some.jsonl", None, "does not say what it holds; name it with --kind"),
        ("evaluation/L0.json", None, "does not say"),
        ("model.safetensors", None, "does not say"),
        ("trees.jsonl", "tre", "no schema 'tre'; did you mean tree?"),
        ("trees.jsonl", "settings", "settings are .yaml files"),
        ("s.yaml", "tree", "settings are .yaml files"),
    ],
)
def test_a_kind_that_cannot_be_is_a_usage_error(path: str, kind: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind_of(Path(path), kind)
    assert message in str(caught.value)
