"""`agentcli push` against a hub on loopback: what arrives there, and what is refused before anything is sent."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import agentcli, succeeded
from hub_server import HubServer
from huggingface_hub import constants
from refusal import refused
from trained_runs import DEMOS, LOOP, make_trained_runs


@pytest.fixture(autouse=True)
def inside(empty_folder: Path) -> None:
    make_trained_runs()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub that HF_ENDPOINT and HF_TOKEN would name: the client has read the first of them already."""
    with HubServer() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        # Files go over HTTP, not by the hub's own protocol for large ones.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub


def test_the_model_and_its_card_arrive_in_one_commit(hub: HubServer) -> None:
    (LOOP / "checkpoint/README.md").write_text("a template", encoding="utf-8")
    answer = succeeded("push", str(LOOP), "me/agent", "--json")
    assert json.loads(answer.stdout)["out"] == f"{hub.url}/me/agent"
    files = hub.repos["me/agent"]
    assert set(files) == {"README.md", "config.json", "model.safetensors"}
    assert files["model.safetensors"] == (LOOP / "checkpoint/model.safetensors").read_bytes()
    assert files["README.md"].startswith(b"---\nlibrary_name: transformers\n")
    assert (hub.commits, hub.private) == (1, set())


def test_another_folder_and_another_card_are_taken_where_they_are_named(hub: HubServer) -> None:
    Path("other").mkdir()
    Path("other/config.json").write_text("{}", encoding="utf-8")
    Path("card.md").write_text("mine", encoding="utf-8")
    answer = succeeded("push", str(LOOP), "me/agent", "--private", "--folder", "other", "--card", "card.md")
    assert answer.stdout == f"{hub.url}/me/agent\n"
    assert hub.repos["me/agent"] == {"README.md": b"mine", "config.json": b"{}"}
    assert hub.private == {"me/agent"}


def test_a_token_that_may_not_write_is_refused_and_never_shown(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_token")
    answer = agentcli("push", str(LOOP), "me/agent")
    refused(answer, 4, names=("me/agent", "401"), remedy="hf auth login")
    assert "hf_wrong_token" not in answer.stderr
    assert hub.repos == {}


def test_a_hub_that_is_not_there_is_one_line(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    answer = agentcli("push", str(LOOP), "me/agent")
    refused(answer, 1, names="me/agent", remedy="again")


def test_a_dry_run_lists_the_files_and_shows_the_card() -> None:
    answer = succeeded("push", str(LOOP), "me/agent", "--dry-run")
    assert {"README.md", "config.json", "model.safetensors", "me/agent"} <= set(answer.stdout.split())
    assert "## Success" in answer.stdout
    plan = json.loads(agentcli("push", str(LOOP), "me/agent", "--dry-run", "--json").stdout)
    assert plan["settings"]["card"] in answer.stdout
    assert plan["counts"]["files"] == 3


def test_an_adapter_whose_base_only_this_machine_has_is_not_uploaded() -> None:
    (LOOP / "checkpoint/config.json").unlink()
    adapter = LOOP / "checkpoint/adapter_config.json"
    adapter.write_text(json.dumps({"base_model_name_or_path": os.getcwd()}), encoding="utf-8")
    answer = agentcli("push", str(LOOP), "me/agent", "--dry-run")
    refused(answer, 2, names=str(adapter), remedy=("--to model", "--folder runs/rl/export/model"))
    adapter.write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen2.5-1.5B"}), encoding="utf-8")
    answer = agentcli("push", str(LOOP), "me/agent", "--dry-run")
    assert "library_name: peft" in answer.stdout
    answer = agentcli("push", str(LOOP), "me/agent", "--folder", "runs/sft/checkpoint", "--dry-run")
    assert "library_name: transformers" in answer.stdout


@pytest.mark.parametrize(
    ("words", "code", "names", "remedy"),
    [
        ((), 2, "RUN", "agentcli push"),
        ((str(LOOP),), 2, "USER/NAME", "agentcli push"),
        ((str(LOOP), "me/a/b"), 2, "me/a/b", "USER/NAME"),
        (("runs/none", "me/agent"), 3, "runs/none", "agentcli rollout"),
        ((str(DEMOS), "me/agent"), 3, "runs/demos/checkpoint", "agentcli train"),
        ((str(LOOP), "me/agent", "--card", "none.md"), 3, "none.md", ""),
        ((str(LOOP), "me/agent", "--folder", "."), 3, "config.json", "name the folder"),
    ],
)
def test_what_cannot_be_uploaded_is_refused(words: tuple[str, ...], code: int, names: str, remedy: str) -> None:
    refused(agentcli("push", *words), code, names=names, remedy=remedy)


def test_without_a_token_it_says_how_to_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    refused(agentcli("push", str(LOOP), "me/agent"), 4, names="token", remedy="hf auth login")
