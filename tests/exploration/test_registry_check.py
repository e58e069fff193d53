"""`check` refuses, before anything is loaded, what growing a tree would refuse, and nothing else."""

from typing import Any

import pytest
from agentcli.errors import UsageError
from agentcli.exploration.registry import METHODS, check
from agentcli.exploration.triggers import EntropySettings
from agentcli.records.settings import PromptSettings, RolloutSettings, Settings
from fitting import fitting
from refusal import refused
from scripted import SeededPolicy
from word_trees import grow_word

ROLLOUTS: list[dict[str, Any]] = [
    {"leaves": 3, "roots": 3},
    {"leaves": 3, "roots": 4},
    {"leaves": 4, "roots": 2, "branch": "fixed:.5"},
    {"leaves": 4, "roots": 2, "branch": "fixed:2"},
    {"leaves": 4, "roots": 2, "branch": "entropy"},
    {"leaves": 4, "roots": 2, "branch": "sometimes"},
]


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"rare-tool"}))
@pytest.mark.parametrize("rollout", ROLLOUTS, ids=str)
def test_both_refuse_the_same_in_the_same_words(method: str, rollout: dict[str, Any]) -> None:
    checked = grown = None
    try:
        check(Settings(rollout=fitting(method, **rollout)))
    except UsageError as error:
        checked = str(error)
    try:
        grow_word(method, SeededPolicy(("a", "win")), **rollout)
    except UsageError as error:
        grown = str(error)
    assert checked == grown
    assert (checked is None) or rollout["roots"] > rollout["leaves"] or rollout["branch"] in ("fixed:2", "sometimes")


@pytest.mark.parametrize(("name", "value"), [("method", "sparc"), ("budget", "tokens=many")])
def test_an_unknown_method_or_budget_is_refused(name: str, value: str) -> None:
    refused(lambda: check(Settings(rollout=RolloutSettings(**{name: value}))), names=value)


@pytest.mark.parametrize(
    ("method", "rollout", "remedy"),
    [
        ("spark", {"entropy": EntropySettings(threshold=0.9)}, "--branch entropy"),
        ("spark", {"branch": "fixed:.5", "entropy": EntropySettings(threshold=0.9)}, "--branch entropy"),
        ("rare-tool", {"select": "greedy", "threshold": 9.0}, "--select rarity"),
    ],
)
def test_a_setting_without_effect_is_refused(method: str, rollout: dict[str, Any], remedy: str) -> None:
    name = "entropy" if method == "spark" else "threshold"
    refused(lambda: check(Settings(rollout=fitting(method, **rollout))), names=f"rollout.{name}", remedy=remedy)
    used = {"branch": "entropy"} if method == "spark" else {"select": "random"}
    check(Settings(rollout=fitting(method, **rollout | used)))


@pytest.mark.parametrize("style", ["chat", "chat-compact"])
def test_a_method_that_runs_other_actions_than_are_named_holds_no_conversation(style: str) -> None:
    chosen = Settings(prompt=PromptSettings(style=style), rollout=fitting("rare-tool"))
    refused(lambda: check(chosen), names=("rare-tool", style), remedy="leave the style out")
    check(Settings(prompt=PromptSettings(style=style), rollout=fitting("chain")))
