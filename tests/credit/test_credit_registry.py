"""The registry: decoding, refusals with the nearest name, plug-ins, and what it must not import."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from agentcli.credit.registry import make
from agentcli.credit.rewardflow import RewardFlowSettings
from agentcli.errors import UsageError
from credit_trees import FAILURE, OF_OUTCOMES, SUCCESS, outcomes
from refusal import refused


@pytest.mark.parametrize("name", sorted(OF_OUTCOMES))
def test_defaults_are_complete_and_stable(name: str) -> None:
    found, assign, own = make({"method": name})
    assert found == name
    single = outcomes([1], [SUCCESS])
    single.steps[0].value = 0.5
    assert assign(single, own).method == name
    resolved = msgspec.to_builtins(own)
    defaults = {"form": "paper", "over": "trajectories", "prefix": "merge", "normalise": "std"}
    assert {switch: value for switch, value in defaults.items() if switch in resolved}.items() <= resolved.items()
    assert {"success_reward", "invalid_penalty"} <= resolved.keys()
    assert make({"method": name, **msgspec.json.decode(msgspec.json.encode(resolved))})[2] == own


VOCABULARY = {
    "grpo": "form over prefix penalty normalise",
    "grpo-prm": "form over prefix penalty normalise state similarity embedding_model scale alpha_action alpha_traj",
    "spark": "form over prefix penalty normalise",
    "rloo": "form over prefix penalty",
    "gigpo": "form over prefix penalty normalise state similarity embedding_model scale gamma w rewards",
    "rewardflow": "form over prefix penalty normalise state similarity embedding_model scale gamma distance "
    "alpha_action alpha_traj group gain no_op_penalty pruning pool loop_steps",
    "carl": "update first_phase",
    "treerl": "",
    "treerpo": "penalty normalise",
    "arpo": "penalty normalise",
    "rlvmr": "form over prefix penalty normalise scale w",
    "dpepo": "form over prefix penalty normalise state alpha omega gamma beta invalid_factor action_reward transition_reward",
    "ppo": "prefix gamma gae_lambda rewards",
}


@pytest.mark.parametrize("name", sorted(OF_OUTCOMES))
def test_a_method_has_the_switches_that_matter_for_it_and_no_other(name: str) -> None:
    own = {field.name for field in msgspec.structs.fields(type(make({"method": name})[2]))}
    assert own == {"success_reward", "outcome", "invalid_penalty", *VOCABULARY[name].split()}
    for switch in {word for words in VOCABULARY.values() for word in words.split()} - own:
        refused(partial(make, {"method": name, switch: None}), names=(f"credit.{switch}", name))


def test_papers_values() -> None:
    rewards = {name: make({"method": name})[2].success_reward for name in OF_OUTCOMES}  # type: ignore[attr-defined]
    assert rewards == dict.fromkeys(OF_OUTCOMES, 1.0) | {"spark": 10.0}
    penalties = {name: make({"method": name})[2].invalid_penalty for name in OF_OUTCOMES}  # type: ignore[attr-defined]
    assert penalties == dict.fromkeys(OF_OUTCOMES, 0.1) | {"dpepo": 0.0}
    omegas = [make({"method": "dpepo", "form": form})[2].omega for form in ("paper", "release")]  # type: ignore[attr-defined]
    assert omegas == [0.95, 0.8]


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
        ({"method": "grpo", "gamma": 0.9}, ["credit.gamma", "grpo has no such setting", "normalise"]),
        ({"method": "rewardflow", "gama": 0.9}, ["credit.gama", "did you mean gamma?"]),
        ({"method": "rewardflow", "gamma": "much"}, ["credit.gamma", "float"]),
        ({"method": "rewardflow", "gamma": 0.0}, ["credit.gamma", "above 0 and at most 1", "0.0"]),
        ({"method": "rewardflow", "gamma": 1.5}, ["credit.gamma", "1.5"]),
        ({"method": "rewardflow", "gamma": float("nan")}, ["credit.gamma", "nan"]),
        ({"method": "rewardflow", "alpha_traj": -1}, ["credit.alpha_traj", "at least 0"]),
        ({"method": "rewardflow", "alpha_action": float("inf")}, ["credit.alpha_action", "at most 1e+09", "inf"]),
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
        ({"method": "grpo", "success_reward": 1e10}, ["credit.success_reward", "at most 1e+09"]),
        ({"method": "grpo", "success_reward": float("nan")}, ["credit.success_reward", "nan"]),
        ({"method": "rewardflow", "pool": "mean"}, ["credit.pool", "similarity is exact"]),
        (
            {"method": "rewardflow", "pool": "mean", "similarity": "difflib:0.9", "distance": "mean"},
            ["credit.pool", "max where distance is mean"],
        ),
        ({"method": "rewardflow", "form": "release", "pruning": False}, ["credit.pruning", "form is release"]),
        (
            {"method": "rewardflow", "form": "release", "similarity": "difflib:0.9"},
            ["credit.similarity", "'exact' where form is release"],
        ),
        ({"method": "gigpo", "similarity": "difflib"}, ["credit.similarity", "difflib:THRESHOLD"]),
        ({"method": "gigpo", "similarity": "difflib:1.5"}, ["credit.similarity", "at most 1"]),
        ({"method": "gigpo", "similarity": "difflib:0"}, ["credit.similarity", "above 0"]),
        ({"method": "gigpo", "similarity": "difflib:nine"}, ["credit.similarity", "difflib:nine"]),
        ({"method": "gigpo", "similarity": "exact:0.9"}, ["credit.similarity", "exact:0.9"]),
        ({"method": "gigpo", "similarity": "cosine:0.9"}, ["credit.similarity", "embedding:THRESHOLD"]),
        ({"method": "gigpo", "similarity": "embedding:0.9"}, ["credit.embedding_model", "directory"]),
        ({"method": "gigpo", "embedding_model": "e5"}, ["credit.embedding_model", "unset where similarity is exact"]),
        ({"method": "gigpo", "gamma": 0}, ["credit.gamma", "above 0 and at most 1"]),
        ({"method": "gigpo", "w": -1}, ["credit.w", "at least 0"]),
        ({"method": "rlvmr", "w": float("nan")}, ["credit.w", "nan"]),
        ({"method": "dpepo", "alpha": 0}, ["credit.alpha", "above 0"]),
        ({"method": "dpepo", "form": "release", "state": "exact"}, ["credit.state", "form is release"]),
        ({"method": "dpepo", "transition_reward": False, "state": "observation"}, ["credit.state", "is off"]),
        ({"method": "dpepo", "omega": 1.1}, ["credit.omega", "at most 1"]),
        ({"method": "dpepo", "invalid_factor": 0}, ["credit.invalid_factor", "above 0"]),
        ({"method": "dpepo", "action_reward": False, "form": "release"}, ["credit.action_reward", "form is release"]),
        ({"method": "dpepo", "transition_reward": False, "form": "release"}, ["credit.transition_reward", "release"]),
        ({"method": "dpepo", "action_reward": False, "omega": 0.5}, ["credit.omega", "action_reward is off"]),
        ({"method": "dpepo", "transition_reward": False, "gamma": 0.5}, ["credit.gamma", "transition_reward is off"]),
        (
            {"method": "dpepo", "action_reward": False, "transition_reward": False, "invalid_factor": 0.5},
            ["credit.invalid_factor", "unset"],
        ),
        ({"method": "ppo", "gae_lambda": 1.01}, ["credit.gae_lambda", "at most 1"]),
        ({"method": "ppo", "rewards": "environment", "success_reward": 10}, ["credit.success_reward", "environment"]),
        ({"method": "ppo", "rewards": "environment", "outcome": "score"}, ["credit.outcome", "environment"]),
        ({"method": "carl", "outcome": "f1"}, ["credit.outcome", "f1"]),
        ({"method": "ppo", "normalise": "std"}, ["credit.normalise", "gae_lambda"]),
        (
            {"method": "grpo", "penalty": "outside", "form": "release"},
            ["credit.penalty", "'inside' where form is release"],
        ),
        ({"method": "rloo", "penalty": "none"}, ["credit.penalty", "none"]),
        ({"method": "treerl", "penalty": "outside"}, ["credit.penalty", "invalid_penalty"]),
        ({"method": "carl", "prefix": "merge"}, ["credit.prefix", "update"]),
    ],
)
def test_refusals_are_one_line_that_names_the_field(switches: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        make(switches)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


def literal_switches() -> list[tuple[str, str, tuple[str, ...]]]:
    """(method, switch, choices) of every switch that is one of a few words."""
    found = []
    for method in OF_OUTCOMES:
        for field in msgspec.structs.fields(type(make({"method": method})[2])):
            words = next(
                (get_args(one) for one in (field.type, *get_args(field.type)) if get_origin(one) is Literal), ()
            )
            if words:
                found.append((method, field.name, words))
    return found


@pytest.mark.parametrize(("method", "switch", "words"), literal_switches())
def test_a_switch_of_few_words_lists_them_with_the_nearest(method: str, switch: str, words: tuple[str, ...]) -> None:
    for value, hint in ((words[0][:-1] + "#", f"did you mean {words[0]}?"), ("~", None), (7, None)):
        with pytest.raises(UsageError) as caught:
            make({"method": method, switch: value})
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(f"credit.{switch}: ")
        assert all(word in message for word in words)
        assert hint is None or hint in message


def test_ranges_hold_without_the_registry() -> None:
    refused(lambda: RewardFlowSettings(gamma=2.0), names="gamma")


PACKAGE = """
from agentcli.credit.switches import Switches
from agentcli.credit.survey import survey_of
from agentcli.records.types import Credit


class LastStepSettings(Switches, kw_only=True):
    weight: float = 2.0


def assign(tree, settings: LastStepSettings) -> Credit:
    survey = survey_of(tree, settings)
    for step in range(len(tree.steps)):
        if step not in survey.ends:
            survey.masked[step] = "not last"

    def advantage(step: int, reward: float) -> tuple[float, dict[str, float]]:
        return settings.weight * reward, {}

    return survey.credit("last-step", survey.rows("merge"), advantage)
"""


def test_a_package_outside_the_repository_adds_a_method(tmp_path: Path) -> None:
    """Installed as pip leaves it: a module and a dist-info directory with its entry point, in a folder that Python looks into."""
    (tmp_path / "laststep.py").write_text(PACKAGE)
    info = tmp_path / "laststep-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: laststep\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentcli.credit]\nlast-step = laststep\n")
    code = (
        "import sys, msgspec\n"
        "from agentcli.credit.registry import make, method_names\n"
        "from agentcli.records.types import Tree\n"
        "name, assign, own = make({'method': 'last-step', 'weight': 3.0})\n"
        "credit = assign(msgspec.json.decode(sys.stdin.buffer.read(), type=Tree), own)\n"
        "print(name in method_names(), msgspec.to_builtins(own), [row.advantage for row in credit.steps])\n"
        "try:\n"
        "    make({'method': 'last-stp'})\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=msgspec.json.encode(outcomes([2, 1], [SUCCESS, FAILURE])),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    first, second = done.stdout.decode().splitlines()
    assert (
        first
        == "True {'success_reward': 1.0, 'outcome': 'success', 'invalid_penalty': 0.1, 'weight': 3.0} [None, 3.0, 0.0]"
    )
    assert second.startswith("credit.method: ")
    assert "last-step?" in second


def test_credit_is_light() -> None:
    """Assigning credit loads no torch, environment, policy, networkx, scipy or numpy; naming the methods loads none of them."""
    code = (
        "import sys; from agentcli.credit import registry; registry.method_names()\n"
        "print(sorted(m for m in sys.modules if m in {'agentcli.credit.' + n for n in registry.METHODS}))\n"
        "[registry.make({'method': name}) for name in registry.METHODS]\n"
        "import agentcli.credit.graph, agentcli.credit.export\n"
        "from agentcli.credit.similarity import difflib_clusters; difflib_clusters(['a', 'b'], 0.9)\n"
        "heavy = 'torch transformers textworld alfworld networkx scipy numpy agentcli.environments agentcli.policies'\n"
        "print([name for name in heavy.split() if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
