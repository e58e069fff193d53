"""The registry: decoding, refusals with the nearest name, plug-ins, and what it must not import."""

import subprocess
import sys
import types
from importlib import metadata
from typing import Any

import msgspec
import pytest
from credit_trees import SUCCESS, outcomes

from agentcli.credit import registry
from agentcli.credit.grpo import GrpoSettings
from agentcli.credit.registry import METHODS, make
from agentcli.credit.rewardflow import RewardFlowSettings
from agentcli.errors import UsageError
from agentcli.records.types import Credit, Tree


@pytest.mark.parametrize("name", sorted(METHODS))
def test_defaults_are_complete_and_stable(name: str) -> None:
    found, assign, own = make({"method": name})
    assert found == name
    assert assign(outcomes([1], [SUCCESS]), own).method == name
    resolved = msgspec.to_builtins(own)
    assert {"form": "paper", "over": "trajectories", "prefix": "merge", "normalise": "std"}.items() <= resolved.items()
    assert make({"method": name, **msgspec.json.decode(msgspec.json.encode(resolved))})[2] == own


def test_papers_rewards() -> None:
    rewards = {name: make({"method": name})[2].success_reward for name in METHODS}  # type: ignore[attr-defined]
    assert rewards == {"grpo": 1.0, "spark": 10.0, "rewardflow": 1.0}


def test_the_settings_given_are_not_changed() -> None:
    given: dict[str, Any] = {"method": "rewardflow", "gamma": 0.5}
    own = make(given)[2]
    assert isinstance(own, RewardFlowSettings)
    assert own.gamma == 0.5
    assert given == {"method": "rewardflow", "gamma": 0.5}


@pytest.mark.parametrize(
    ("switches", "parts"),
    [
        ({}, ["credit.method", "grpo", "rewardflow"]),
        ({"method": None}, ["credit.method"]),
        ({"method": "rewardflwo"}, ["credit.method", "did you mean rewardflow?"]),
        ({"method": "xyz"}, ["credit.method", "there are", "spark"]),
        ({"method": "grpo", "gamma": 0.9}, ["credit.gamma", "grpo has no such switch", "normalise"]),
        ({"method": "rewardflow", "gama": 0.9}, ["credit.gama", "did you mean gamma?"]),
        ({"method": "rewardflow", "gamma": "much"}, ["credit.gamma", "expected `float`, got `str`"]),
        ({"method": "rewardflow", "gamma": 0.0}, ["credit.gamma", "above 0 and at most 1", "0.0"]),
        ({"method": "rewardflow", "gamma": 1.5}, ["credit.gamma", "1.5"]),
        ({"method": "rewardflow", "gamma": float("nan")}, ["credit.gamma", "nan"]),
        ({"method": "rewardflow", "alpha_traj": -1}, ["credit.alpha_traj", "at least 0"]),
        ({"method": "rewardflow", "alpha_action": float("inf")}, ["credit.alpha_action", "finite"]),
        ({"method": "rewardflow", "no_op_penalty": -0.1}, ["credit.no_op_penalty"]),
        ({"method": "rewardflow", "distance": "max"}, ["credit.distance", "max"]),
        ({"method": "rewardflow", "loop_steps": 5}, ["credit.loop_steps", "form is paper"]),
        ({"method": "rewardflow", "form": "release", "loop_steps": 0}, ["credit.loop_steps", "at least 1"]),
        ({"method": "rewardflow", "form": "release", "distance": "mean"}, ["credit.distance", "form is release"]),
        ({"method": "rewardflow", "form": "release", "gain": "discounted"}, ["credit.gain", "form is release"]),
        (
            {"method": "rewardflow", "form": "release", "no_op_penalty": 0.1},
            ["credit.no_op_penalty", "form is release"],
        ),
        ({"method": "grpo", "success_reward": 0}, ["credit.success_reward", "above 0"]),
        ({"method": "spark", "invalid_penalty": -0.1}, ["credit.invalid_penalty", "at least 0"]),
        ({"method": "grpo", "over": "rows"}, ["credit.over", "rows"]),
    ],
)
def test_refusals_are_one_line_that_names_the_field(switches: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        make(switches)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


def test_ranges_hold_without_the_registry() -> None:
    with pytest.raises(UsageError, match="gamma: must be above 0"):
        RewardFlowSettings(gamma=2.0)


def test_an_installed_package_adds_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    def assign(tree: Tree, settings: GrpoSettings) -> Credit:
        return Credit(task=tree.task.id, method="other", steps=[])

    module = types.ModuleType("other_credit")
    module.assign = assign  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_credit", module)
    point = metadata.EntryPoint("other", "other_credit", "agentcli.credit")

    def points(group: str, name: str | None = None) -> list[metadata.EntryPoint]:
        return [point] if group == "agentcli.credit" and name in (None, "other") else []

    monkeypatch.setattr(registry.metadata, "entry_points", points)
    name, found, own = make({"method": "other", "normalise": "mean"})
    assert (name, found) == ("other", assign)
    assert own == GrpoSettings(normalise="mean")
    assert "other" in registry.method_names()
    with pytest.raises(UsageError, match="did you mean other"):
        make({"method": "othr"})


def test_credit_is_light() -> None:
    """Assigning credit loads no torch, environment, policy, networkx, scipy or numpy; naming the methods loads none of them."""
    code = (
        "import sys; from agentcli.credit import registry; registry.method_names()\n"
        "print(sorted(m for m in sys.modules if m in {'agentcli.credit.' + n for n in registry.METHODS}))\n"
        "[registry.make({'method': name}) for name in registry.METHODS]\n"
        "import agentcli.credit.graph, agentcli.credit.export\n"
        "heavy = 'torch transformers textworld alfworld networkx scipy numpy agentcli.environments agentcli.policies'\n"
        "print([name for name in heavy.split() if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
