"""The papers' presets of search QA: RewardFlow Table 8, CARL App. C, and where every value comes from."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from agentcli.credit.registry import make as make_credit
from agentcli.records.settings import Settings
from agentcli.stages.layers import find_preset, resolve
from command_line import agentcli, succeeded
from refusal import refused
from tiny_encoder import write_encoder

OF_REWARDFLOW = ("gigpo-search", "rewardflow-search")
OF_CARL = (
    "carl-search",
    "carl-lite-search",
    "grpo-search",
    "treerl-search",
    "treerpo-search",
    "arpo-search",
    "react-search",
)
ENCODER = "models/e5-base-v2"


def settings_of(name: str) -> Settings:
    return resolve(name, [], {}, [], {})


def text_of(name: str) -> str:
    return find_preset(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OF_REWARDFLOW)
def test_002_table_8(name: str) -> None:
    """Column DeepResearch."""
    settings = settings_of(name)
    sizes = (settings.rollout.tasks_per_step, settings.train.rows_per_update, settings.environment.max_steps)
    assert sizes == (256, 512, 4)
    policy = settings.policy
    assert (policy.max_prompt_tokens, policy.max_tokens, policy.temperature) == (4096, 512, 0.4)
    assert (settings.run.iterations, settings.train.learning_rate, settings.train.beta) == (200, 1e-6, 0.01)
    assert (settings.rollout.leaves, settings.rollout.method, settings.train.aggregate) == (5, "chain", "step")
    assert settings.credit["invalid_penalty"] == 0.01
    assert settings.environment.options == {"actions": "search", "reward": "exact", "results": 3}


def test_002_clusters_states_by_their_embeddings() -> None:
    _, _, switches = make_credit(settings_of("rewardflow-search").credit)
    assert (switches.similarity, switches.embedding_model) == ("embedding:0.9", ENCODER)
    assert (switches.gamma, switches.alpha_action, switches.alpha_traj) == (0.9, 1.0, 1.0)
    _, _, switches = make_credit(settings_of("gigpo-search").credit)
    assert (switches.similarity, switches.gamma, switches.w) == ("difflib:0.9", 0.95, 1.0)


@pytest.mark.parametrize(
    ("name", "method", "leaves", "rows"),
    [
        ("carl-search", "carl", 8 + 16, 64 * (7 + 2 * 16)),
        ("carl-lite-search", "carl", 1 + 16, 64 * 2 * 16),
        ("grpo-search", "chain", 16, 64 * 16 * 10),
        ("treerl-search", "treerl", 16, 64 * 16 * 10),
        ("treerpo-search", "treerpo", 16, 64 * 16 * 10),
        ("arpo-search", "arpo", 16, 64 * 16 * 10),
    ],
)
def test_003_appendix_c_3(name: str, method: str, leaves: int, rows: int) -> None:
    """Reasoning models, with at most 10 actions; one update holds all rows of an iteration."""
    settings = settings_of(name)
    rollout, train = settings.rollout, settings.train
    assert (rollout.method, rollout.leaves, rollout.tasks_per_step) == (method, leaves, 64)
    assert (train.learning_rate, train.beta, train.aggregate, train.rows_per_update) == (1e-5, 0.0, "token", rows)
    assert settings.run.iterations == 100
    assert settings.credit["outcome"] == "score"


@pytest.mark.parametrize("name", OF_CARL)
def test_003_has_four_actions_and_rewards_f1(name: str) -> None:
    environment = settings_of(name).environment
    assert environment.max_steps == 10
    read = {"results": 5, "snippet": 5000, "part": 25_000}
    assert environment.options == {"actions": "browse", "reward": "f1-asearcher", **read}


@pytest.mark.parametrize(
    ("name", "rows_of_task"), [("carl-search", 7 + 2 * 16), ("carl-lite-search", 2 * 16), ("grpo-search", 16 * 32)]
)
def test_003_other_models_and_32_actions_keep_one_update_an_iteration(name: str, rows_of_task: int) -> None:
    """App. C.3: 128 tasks for non-reasoning models; 50 steps for reasoning models with 32 actions alone."""
    header = " ".join(line.removeprefix("#").strip() for line in text_of(name).partition("\n\n")[0].splitlines())
    others = header.partition("Models: ")[2].partition(").")[0]
    assert f"train.rows_per_update={128 * rows_of_task} " in others
    longer = header.partition("32 actions: --")[2].partition(". Data")[0]
    for_all, _, for_4b = longer.partition(", with Qwen3-4B also --iterations 50")
    assert "rows_per_update" not in for_all
    rows = re.findall(r"train.rows_per_update=(\d+)", for_4b)
    assert rows == ([str(64 * rows_of_task)] if name == "grpo-search" else [])
    # Prompt and response fill the context of the papers' models.
    assert int(re.findall(r"max_prompt_tokens=(\d+)", for_all)[0]) + settings_of(name).policy.max_tokens == 32_768


@pytest.mark.parametrize("name", [*OF_REWARDFLOW, *OF_CARL])
def test_every_value_says_where_it_comes_from(name: str) -> None:
    header, _, body = text_of(name).partition("\n\n")
    assert re.search(r"^# Settings: (RewardFlow|CARL), ", header, re.MULTILINE)
    assert re.search(r"^# Result: .*(RewardFlow|CARL) Table 2", header, re.MULTILINE)
    for line in body.splitlines():
        key, _, value = line.strip().partition(": ")
        if value and key not in ("name", "method") and (key, value) != ("split", "train"):
            assert re.match(r"(SPARK|RewardFlow|CARL):? |not named", value.partition("# ")[2]), line
    method = yaml.safe_load(body).get("credit", {}).get("method")
    assert method is None or name.startswith((method, "grpo"))


@pytest.mark.parametrize("name", [*OF_REWARDFLOW, *OF_CARL])
def test_its_commands_are_accepted(name: str, empty_folder: Path) -> None:
    """As typed, on whole panels, but for --dry-run; those that evaluate what was trained want the preset besides."""
    write_encoder(empty_folder / ENCODER, ["a"])
    commands = re.findall(r"^#   agentcli (.+)$", text_of(name), re.MULTILINE)
    model = next(re.findall(r"--model (\S+)", command)[0] for command in commands if "--model" in command)
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)
        if "--model" not in words:
            words += ["--preset", name, "--model", model]
        succeeded(*words, "--dry-run")


def test_without_the_encoder_its_preset_says_what_to_name(empty_folder: Path) -> None:
    words = ("run", "--preset", "rewardflow-search", "--model", "Qwen/Qwen2.5-3B-Instruct", "-o", "x", "--dry-run")
    refused(agentcli(*words), 4, ["credit.embedding_model", ENCODER])
