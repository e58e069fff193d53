"""Options that cannot take effect are refused, with the reason; those that can are let through."""

import json

import pytest
from command_line import agentcli, all_commands, settings_of
from refusal import refused

COMMANDS = all_commands()
ENDPOINT = ["--policy", "openai", "--base-url", "http://127.0.0.1:1/v1", "--model", "served", "--temperature", "0.5"]

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["rollout", "--base-url", "http://x/v1"],
            "--base-url has no effect with --policy transformers; add --policy openai",
        ),
        (["eval", "--policy", "random", "--base-url", "u"], "--base-url has no effect with --policy random; add"),
        (["demos", "--base-url", "u"], "--base-url has no effect with --policy search; add --policy openai"),
        (
            ["rollout", *ENDPOINT, "--adapter", "a"],
            "--adapter has no effect with --policy openai, where the server loads",
        ),
        (["rollout", *ENDPOINT, "--device", "cpu"], "--device has no effect with --policy openai, where the server"),
        (["rollout", "--policy", "vllm", "--device", "cpu"], "--device has no effect with --policy vllm, which takes"),
        (["demos", *ENDPOINT, "--dtype", "float32"], "--dtype has no effect with --policy openai, where the server"),
        (
            ["demos", "--policy", "expert", "--device", "cpu"],
            "--device has no effect with --policy expert, which asks no model",
        ),
        (["rollout", "--policy", "exprt", "--model", "x"], "policy.kind: no policy 'exprt'; did you mean expert?"),
        (
            ["rollout", "--leaves", "1", "--distinct", "2"],
            "--distinct has no effect with rollout.leaves 1, where nothing",
        ),
        (
            ["rollout", "--temperature", "0", "--distinct", "2"],
            "--distinct has no effect with policy.temperature 0, where every draw is the same",
        ),
        (
            ["train", "--set", "train.objective=dpo", "--credit", "grpo"],
            "--credit has no effect with train.objective dpo",
        ),
        (
            ["run", "--set", "train.objective=dpo", "--credit", "grpo"],
            "--credit has no effect with train.objective dpo, which reads no credit",
        ),
        (
            ["train", "--set", "train.objective=dpo", "--recompute-logprobs"],
            "--recompute-logprobs has no effect with train.objective dpo",
        ),
    ],
)
def test_without_effect(words: list[str], message: str) -> None:
    answer = agentcli(*words, "--dry-run")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"error: {message}")
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["rollout", "eval", "pass-at-k", "test-time-branch", "demos"])
def test_model_and_temperature_take_effect_with_an_endpoint(name: str) -> None:
    settings = settings_of(COMMANDS[(name,)], ENDPOINT)
    assert settings.policy.model == "served"
    assert settings.policy.endpoint.base_url == "http://127.0.0.1:1/v1"
    assert 0.5 in (settings.policy.temperature, settings.evaluation.temperature)
    assert "openai" in (settings.policy.kind, settings.demos.policy)


def test_credit_takes_effect_with_a_policy_gradient() -> None:
    assert settings_of(COMMANDS[("train",)], ["--credit", "grpo"]).train.credit == "grpo"


def test_the_habits_of_a_preset_are_dropped_for_a_policy_that_has_none() -> None:
    demos = ("demos", "--preset", "quickstart", "--policy", "expert", "--dry-run", "--json")
    answer = agentcli(*demos)
    settings = json.loads(answer.stdout)["settings"]["demos"]
    assert (settings["forget"], settings["overlook"], settings["stray"]) == (0, 0, 0.1)
    assert all(name in answer.stderr for name in ("demos.forget", "demos.overlook"))
    refused(agentcli(*demos, "--set", "demos.forget=0.5"), names="demos.forget", remedy="demos.forget=0")
