"""A training goes on with an adapter in its own rank and alpha; settings that contradict it are refused in the plan."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from agentcli.errors import UsageError
from agentcli.records.files import read_json
from agentcli.records.settings import Settings
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import Manifest
from agentcli.stages.plan import with_adapter, with_changes
from bad_input_runs import START, folder
from command_line import agentcli, succeeded
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

ADAPTER = "runs/lora/checkpoint"
SFT = ("sft", "runs/demos", "-c", "toy.yaml", "--model", ADAPTER, "-o", "new")
TRAIN = ("train", "runs/x", "--model", ADAPTER, "-o", "new")
RUN = ("run", "--preset", "./toy.yaml", "--model", ADAPTER, "--iterations", "2", "-o", "new")
STAGES = pytest.mark.parametrize("words", [SFT, TRAIN, RUN], ids=["sft", "train", "run"])


def configuration(folder: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(Path(folder, "adapter_config.json").read_bytes())
    return config


def with_alpha(alpha: int) -> None:
    """The adapter of the folder with another alpha than the default."""
    path = Path(ADAPTER, "adapter_config.json")
    path.write_text(json.dumps({**configuration(ADAPTER), "lora_alpha": alpha}))


@STAGES
def test_rank_and_alpha_are_the_adapter_s(words: tuple[str, ...]) -> None:
    with_alpha(5)
    succeeded(*words)
    before, after = configuration(ADAPTER), configuration("new/checkpoint")
    assert [after[key] for key in ("r", "lora_alpha")] == [before[key] for key in ("r", "lora_alpha")] == [2, 5]
    stage = "sft" if words is SFT else "train"
    run = "new/iteration_001" if words is RUN else "new"
    lora = read_json(Path(run, "manifest.json"), Manifest).stages[stage].settings[stage]["lora"]
    assert (lora["rank"], lora["alpha"]) == (2, 5)


@STAGES
@pytest.mark.parametrize("key", ["rank", "alpha"])
def test_another_shape_is_refused_before_anything_is_written(words: tuple[str, ...], key: str) -> None:
    section = "sft" if words is SFT else "train"
    asked = f"{section}.lora.{key}"
    refused(agentcli(*words, "--set", f"{asked}=3", "-q"), 2, (asked, ADAPTER), f"set {asked}=")
    assert not Path("new").exists()


@given(rank=st.integers(0, 64), alpha=st.integers(1, 64))
def test_only_the_default_or_the_adapter_s_own_shape_is_taken(rank: int, alpha: int) -> None:
    settings = with_changes(Settings(), train={"lora": LoraSettings(rank=rank, alpha=alpha)})
    shape = {"rank": configuration(ADAPTER)["r"], "alpha": configuration(ADAPTER)["lora_alpha"]}
    if rank in (0, shape["rank"]) and alpha in (16, shape["alpha"]):
        lora = with_adapter(settings, "train", ADAPTER).train.lora
        assert {"rank": lora.rank, "alpha": lora.alpha} == shape
    else:
        with pytest.raises(UsageError):
            with_adapter(settings, "train", ADAPTER)
    assert with_adapter(settings, "train", START) == settings


def test_a_critic_s_adapter_must_have_the_policy_s_shape() -> None:
    shutil.copytree(ADAPTER, "critic")
    Path("critic/critic.json").write_text('{"head": "linear"}')
    critic = ("--set", "train.objective=ppo", "--set", "train.options.critic=critic")
    words = ("train", "runs/x", "--model", START, "-o", "new", *critic, "-q")
    refused(agentcli(*words), 2, ("train.lora.rank", "critic"), "train.lora.rank=2")
    refused(agentcli(*words, "--lora", "3"), 2, ("train.lora.rank", "critic"), "train.lora.rank=2")
    assert agentcli(*words, "--lora", "2", "--dry-run").code == 0
