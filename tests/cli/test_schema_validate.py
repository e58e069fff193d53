"""`agentcli schema` and `agentcli validate` as a user meets them: stdout, stderr and exit codes."""

import json
from pathlib import Path

import pytest
from agentcli.analysis.schema import json_schema
from agentcli.cli.checks import SCHEMA, VALIDATE
from agentcli.records.files import write_json
from agentcli.records.types import Manifest
from command_line import agentcli, succeeded


@pytest.fixture(autouse=True)
def alone(empty_folder: Path) -> None:
    """A folder with a good and a bad settings file and a manifest."""
    Path("good.yaml").write_text("seed: 1", encoding="utf-8")
    Path("bad.yaml").write_text("sed: 1", encoding="utf-8")
    write_json(Path("manifest.json"), Manifest())


def test_help_ends_with_an_example() -> None:
    for command in (SCHEMA, VALIDATE):
        text = " ".join(agentcli(command.name, "--help").stdout.split())
        assert f"Example: {command.example}" in text
        assert command.example.startswith(f"agentcli {command.name} ")


def test_a_schema_goes_to_stdout() -> None:
    result = agentcli("schema", "tree")
    assert (result.code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == json_schema("tree")


def test_good_files_are_a_line_each_on_stderr() -> None:
    result = agentcli("validate", "good.yaml", "manifest.json")
    assert (result.code, result.stdout) == (0, "")
    assert result.stderr == "good.yaml: 1 record of settings, fine\nmanifest.json: 1 record of manifest, fine\n"


def test_files_after_a_bad_one_are_checked_too() -> None:
    result = agentcli("validate", "bad.yaml", "good.yaml", "gone.json")
    assert (result.code, result.stdout) == (3, "")
    bad, good, gone = result.stderr.splitlines()
    assert bad.startswith("error: bad.yaml: sed: ")
    assert bad.endswith("mean seed?")
    assert good.startswith("good.yaml: 1 record ")
    assert good.endswith(", fine")
    assert gone.startswith("error: gone.json: ")
    assert "(No such file" in gone


def test_json_lines() -> None:
    result = agentcli("validate", "bad.yaml", "manifest.json", "--json")
    problem = "bad.yaml: sed: no such setting; did you mean seed?"
    assert result.code == 3
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"file": "bad.yaml", "kind": "settings", "records": None, "problem": problem},
        {"file": "manifest.json", "kind": "manifest", "records": 1, "problem": None},
    ]
    assert result.stderr == f"error: {problem}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["schema"], "name a schema: task, step"),
        (["schema", "tre"], "no schema 'tre'; did you mean tree?"),
        (["validate"], "name the files"),
        (["validate", "manifest.json", ".", "--kind", "manifest"], ".: is a directory, --kind says what a file holds"),
        (["validate", "manifest.json", "--kind", "manifst"], "no schema 'manifst'; did you mean manifest?"),
    ],
)
def test_usage_errors_are_one_line_and_nothing_is_checked(words: list[str], message: str) -> None:
    result = agentcli(*words)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"error: {message}")


def test_a_file_of_others_is_left_out_beside_others_and_refused_alone() -> None:
    Path("seconds.tsv").write_text("1\t2\n", encoding="utf-8")
    beside = succeeded("validate", "seconds.tsv", "good.yaml")
    left_out, checked = beside.stderr.splitlines()
    assert "seconds.tsv" in left_out
    assert "good.yaml" in checked
    alone = agentcli("validate", "seconds.tsv")
    assert (alone.code, alone.stderr.count("\n")) == (2, 1)
    assert "--kind" in alone.stderr


def test_a_file_that_is_not_there_is_said_not_to_be_there() -> None:
    result = agentcli("validate", "nofile.jsonl")
    assert (result.code, result.stderr) == (3, "error: nofile.jsonl: cannot be read (No such file or directory)\n")


def test_a_run_directory_is_checked_file_by_file() -> None:
    Path("run").mkdir()
    write_json(Path("run/manifest.json"), Manifest())
    Path("run/trees.jsonl").write_text('\n{"task": "a\\nb"}\n', encoding="utf-8")
    result = agentcli("validate", "run", "good.yaml", "--json")
    problem = "run/trees.jsonl:2: Expected `object`, got `str` - at `$.task`"
    assert result.code == 3
    assert [json.loads(line)["problem"] for line in result.stdout.splitlines()] == [None, problem, None]
    assert result.stderr == f"error: {problem}\n"
