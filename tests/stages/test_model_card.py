"""The model card: where the weights come from, what they score, what to type for the same; and nothing of the machine."""

import pytest
import yaml
from agentcli.stages.layers import find_preset
from agentcli.stages.push import _public, base_model, lineage, model_card
from refusal import refused
from trained_runs import DEMOS, LOOP, SFT, make_trained_runs, record

pytestmark = pytest.mark.usefixtures("empty_folder")


def metadata(card: str) -> dict:
    return yaml.safe_load(card.split("---\n")[1])


def test_the_trainings_are_followed_to_the_first_model() -> None:
    make_trained_runs()
    trainings = lineage(LOOP)
    assert [(one.run.path, one.stage) for one in trainings] == [(LOOP, "run"), (SFT, "sft")]
    assert base_model(trainings) is None
    assert "base_model" not in metadata(model_card(LOOP))


def test_a_model_of_the_hub_is_the_base() -> None:
    make_trained_runs("Qwen/Qwen2.5-1.5B-Instruct")
    assert metadata(model_card(LOOP))["base_model"] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert "Qwen/Qwen2.5-1.5B-Instruct" in model_card(LOOP)


def test_methods_paper_preset_and_success_are_those_of_the_run() -> None:
    make_trained_runs()
    card = model_card(LOOP, "me/agent")
    assert card.count("# me/agent\n") == 1
    assert {"chain", "rewardflow", "agentcli", "alfworld"} <= set(metadata(card)["tags"])
    assert "RewardFlow: Topology-Aware Reward" in card
    assert "| preset `quickstart` |" in card
    assert "| iterations | 3 |" in card
    # Two of five episodes succeed, one of them errored: sample_records.evaluation.
    assert "| L0 | L0, 1 tasks | 5 | 1 | 40.0 |" in card
    assert "eval --model me/agent --env alfworld\n" in card


def test_a_method_of_ones_own_is_named_without_its_folders() -> None:
    make_trained_runs()
    manifest = LOOP / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace('"rewardflow"', '"/home/me/own.py:assign"'), encoding="utf-8")
    card = model_card(LOOP)
    assert "own.py:assign" in metadata(card)["tags"]
    assert "/home/me" not in card


def test_where_no_credit_is_read_the_objective_is_named() -> None:
    make_trained_runs()
    pairs = {"train": {"objective": "dpo"}, "policy": {"model": f"{SFT}/checkpoint"}}
    record(LOOP, "run", "agentcli run", 2, sections=pairs)
    tags = metadata(model_card(LOOP))["tags"]
    assert "dpo" in tags
    assert not {"grpo", "rewardflow"} & set(tags)


def test_the_use_of_a_model_names_the_world_that_it_was_trained_in() -> None:
    """By the preset that a stage of its world began with, else by the world and the form of its prompts."""
    make_trained_runs()
    layers = [str(find_preset("quickstart")), "/home/me/own.yaml", "--leaves 2"]
    record(DEMOS, "demos", "agentcli demos --preset quickstart -o runs/demos", 0, layers=layers)
    assert "eval --model me/agent --preset quickstart\n" in model_card(LOOP, "me/agent")
    other = {"environment": {"name": "/home/me/w.py:World"}, "prompt": {"style": "compact"}}
    record(LOOP, "run", "agentcli run", 2, sections={**other, "policy": {"model": f"{SFT}/checkpoint"}})
    assert "eval --model me/agent --env w.py:World --set prompt.style=compact\n" in model_card(LOOP, "me/agent")


def test_the_commands_are_in_the_order_they_were_typed_in_and_name_no_folder_of_the_machine() -> None:
    make_trained_runs()
    card = model_card(LOOP)
    commands = card.partition("```sh\n")[2].partition("\n```")[0].splitlines()
    assert [line.split()[1] for line in commands] == ["demos", "sft", "run", "eval"]
    assert commands[-1] == f"agentcli eval {LOOP} --data alfworld"
    assert "/home/me" not in card


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("/home/me/c.jsonl", "c.jsonl"),
        ("--data=/home/me/c.jsonl", "--data=c.jsonl"),
        ("{corpus: /home/me/c.jsonl}", "{corpus: c.jsonl}"),
        ('x={"corpus":"/home/me/c.jsonl"}', 'x={"corpus":"c.jsonl"}'),
        ("[/home/me/a,/home/me/b]", "[a,b]"),
        ("/home/me/runs/start/checkpoint", "start/checkpoint"),
        ("--model=/home/me/rl/best", "--model=rl/best"),
        ("/home/me/bestiary/x", "x"),
        ("https://host/v1/models", "https://host/v1/models"),
        ("Qwen/Qwen2.5-1.5B, 3 / 4 of it", "Qwen/Qwen2.5-1.5B, 3 / 4 of it"),
    ],
)
def test_a_word_names_no_folder_of_the_machine(word: str, shown: str) -> None:
    assert _public(word) == shown


def test_text_that_would_break_the_table_or_the_terminal_is_harmless() -> None:
    make_trained_runs()
    record(LOOP, "run", "agentcli run --set x=\x1b[31m", 2, sections={"policy": {"model": "a|b\x1b[0m"}})
    card = model_card(LOOP)
    assert "\x1b" not in card
    assert "a\\|b" in card


def test_a_circle_of_runs_ends() -> None:
    make_trained_runs()
    record(SFT, "train", "agentcli train runs/sft", 1, sections={"policy": {"model": f"{LOOP}/checkpoint"}})
    assert len(lineage(LOOP)) == 2


def test_a_run_without_a_training_has_no_card() -> None:
    make_trained_runs()
    refused(lambda: model_card(DEMOS), 3, names="runs/demos/manifest.json", remedy="agentcli train")
