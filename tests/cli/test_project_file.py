"""agentcli.yaml: the settings that all commands of a folder begin with, below every other layer."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.runs import RunDirectory
from command_line import agentcli, succeeded
from refusal import refused

ROLLOUT = ("rollout", "--env", "ezpoints", "--policy", "random", "--tasks", "1", "-o", "runs/x")
NOTE = "settings of agentcli.yaml in this folder, below all others"

pytestmark = pytest.mark.usefixtures("empty_folder")


def write(text: str) -> None:
    Path("agentcli.yaml").write_text(text, encoding="utf-8")


def shown(*words: str) -> dict[str, Any]:
    """The settings that a dry run prints."""
    answer = succeeded(*words, "--dry-run", "--json")
    settings: dict[str, Any] = json.loads(answer.stdout)["settings"]
    return settings


def test_it_changes_defaults_and_every_other_layer_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    write("rollout: {leaves: 3, minimum_leaves: 2}\nenvironment: {max_steps: 4}\nseed: 5")
    assert shown(*ROLLOUT)["rollout"]["leaves"] == 3
    Path("mine.yaml").write_text("rollout: {leaves: 7}", encoding="utf-8")
    monkeypatch.setenv("AGENTCLI_SEED", "6")
    for words in (("-c", "mine.yaml"), ("--preset", "./mine.yaml"), ("--leaves", "7"), ("--set", "rollout.leaves=7")):
        settings = shown(*ROLLOUT, *words)
        assert settings["rollout"]["leaves"] == 7
        assert (settings["environment"]["max_steps"], settings["seed"]) == (4, 6)


def test_a_later_run_keeps_what_it_was_begun_with() -> None:
    """The recorded layer is above the folder's."""
    assert agentcli(*ROLLOUT, "--max-steps", "3").code == 0
    write("environment: {max_steps: 9}")
    assert (
        shown("eval", "runs/x", "--policy", "random", "--split", "valid", "--tasks", "1")["environment"]["max_steps"]
        == 3
    )


def test_it_is_named_when_it_is_read_and_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    write("seed: 5")
    monkeypatch.setenv("AGENTCLI_ROLLOUT__LEAVES", "2")
    answer = succeeded(*ROLLOUT, "--max-steps", "2")
    assert answer.stderr.count(NOTE) == 1
    record = RunDirectory(Path("runs/x")).load_manifest().stages["rollout"]
    first, variable, *options = record.layers
    assert (first, variable) == ("agentcli.yaml", "AGENTCLI_ROLLOUT__LEAVES")
    assert "--max-steps 2" in options
    assert NOTE not in agentcli(*ROLLOUT, "--overwrite", "-q").stderr


def test_it_may_extend_a_preset_and_another_method_leaves_its_switches_behind() -> None:
    write("extends: quickstart-ezpoints\nrollout: {method: spark, fork: at}")
    assert shown(*ROLLOUT)["rollout"]["fork"] == "at"
    settings = shown(*ROLLOUT, "--method", "chain")
    assert settings["rollout"]["method"] == "chain"
    assert "fork" not in settings["rollout"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rollout: {leafs: 3}", ("agentcli.yaml", "rollout.leafs", "leaves")),
        ("seed: five", ("agentcli.yaml", "seed")),
        ("[1]", "agentcli.yaml"),
        ("a: [", "agentcli.yaml"),
        ("extends: quickstrat", ("agentcli.yaml", "quickstart")),
    ],
)
def test_what_is_wrong_in_it_is_named(text: str, names: str | tuple[str, ...]) -> None:
    write(text)
    answer = agentcli(*ROLLOUT, "-q")
    refused(answer, names=names)


def test_a_folder_of_that_name_is_refused() -> None:
    Path("agentcli.yaml").mkdir()
    refused(agentcli(*ROLLOUT, "-q"), names="agentcli.yaml")


def test_commands_that_read_no_settings_do_not_read_it() -> None:
    write("nothing: like this")
    assert agentcli("preset", "list").code == 0


def test_a_study_refuses_it() -> None:
    """Its file would not show them."""
    write("seed: 5")
    refused(agentcli("study", "small-model", "--dry-run"), names="agentcli.yaml", remedy="another folder")
