"""The release form of rloo, gigpo, rlvmr and dpepo against numbers from the authors' own code (tests/golden/README.md)."""

import re
from typing import Any

import pytest
from agentcli.credit import dpepo, gigpo, grpo, rloo, rlvmr
from agentcli.credit.similarity import difflib_clusters
from agentcli.records.types import Tree, Validity
from credit_trees import FAILURE, SUCCESS, advantages, chains, golden, move, outcomes
from test_credit_golden import STD, VALUE, close, std


@pytest.mark.parametrize("over", ["steps", "trajectories"])
def test_rloo_release(over: str) -> None:
    compared = 0
    for case in golden("rloo.json"):
        for uid in sorted(set(case["uid"])):
            members = [i for i, name in enumerate(case["uid"]) if name == uid]
            wrong = {(n, t) for n, i in enumerate(members) for t, ok in enumerate(case["valid"][i]) if not ok}
            ends = [SUCCESS if case["episode_rewards"][i] else FAILURE for i in members]
            settings = rloo.RlooSettings(
                form="release", success_reward=10.0, invalid_penalty=case["invalid_coef"], over=over
            )
            computed = advantages(
                rloo.assign(outcomes([case["traj_lengths"][i] for i in members], ends, wrong), settings)
            )
            wanted = [x for i in members for x in case["advantage"][f"cross_steps={over == 'steps'}"][i]]
            close(computed, wanted, VALUE)
            compared += 1
    assert compared >= 20


def gigpo_groups() -> Any:
    """(case, first trajectory number, its end, tree) of every golden group; the raw observations are the states."""
    for case in golden("gigpo.json"):
        first = 0
        for group in case["input"]["groups"]:
            trajectories = [
                [
                    {
                        "state": row["obs"],
                        "validity": Validity.VALID if row["is_action_valid"] else Validity.MALFORMED,
                        "outcome": (SUCCESS if row["env_reward"] else FAILURE) if t == len(raw) - 1 else None,
                    }
                    for t, row in enumerate(raw)
                ]
                for raw in group["trajectories"]
            ]
            yield case, first, first + len(trajectories), chains(trajectories)
            first += len(trajectories)


@pytest.mark.parametrize("similarity", ["exact", "difflib:0.9"])
@pytest.mark.parametrize("normalise", ["std", "mean"])
def test_gigpo_release(normalise: str, similarity: str) -> None:
    mode = "mean_std_norm" if normalise == "std" else "mean_norm"
    mode += "_sim0.9" if similarity != "exact" else ""
    compared = 0
    for case, first, end, grown in gigpo_groups():
        settings = gigpo.GigpoSettings(
            form="release",
            success_reward=10.0,
            invalid_penalty=case["invalid_coef"],
            gamma=case["gamma"],
            normalise=normalise,
            similarity=similarity,
        )
        credit = gigpo.assign(grown, settings)
        close([row.parts["return"] for row in credit.steps], flat(case["discounted_returns"][first:end]), VALUE)
        wanted = flat(case["advantage"][mode][first:end])
        rewards = flat(case["step_rewards_after_penalty"][first:end])
        scores = flat(case["episode_score_after_penalty"][first:end])
        keys = [step.state for step in grown.steps]
        if similarity != "exact":
            of = difflib_clusters(list(dict.fromkeys(keys)), 0.9)
            keys = [of[key] for key in keys]
        by_state: dict[str, list[float]] = {}
        for key, reward in zip(keys, rewards, strict=True):
            by_state.setdefault(key, []).append(reward)
        for row, key, value in zip(credit.steps, keys, wanted, strict=True):
            noise = std(scores) < 1e-4 or (len(by_state[key]) > 1 and std(by_state[key]) < 1e-4)
            if normalise == "std" and noise:
                continue
            assert row.advantage == pytest.approx(value, abs=STD)
            compared += 1
    assert compared > 500


def flat(nested: list[list[float]]) -> list[float]:
    return [x for row in nested for x in row]


@pytest.mark.parametrize("threshold", ["0.8", "0.9", "0.95"])
def test_similarity_clusters_are_the_releases(threshold: str) -> None:
    for case in golden("units.json", "similarity"):
        keys = list(dict.fromkeys(flat(case["trajectories"])))
        computed = difflib_clusters(keys, float(threshold))
        numbers = {first: number for number, first in enumerate(dict.fromkeys(computed.values()))}
        assert {key: numbers[first] for key, first in computed.items()} == case["state_to_idx"][threshold]


def rlvmr_tree(case: dict[str, Any]) -> Tree:
    trajectories = []
    for reward, raw in zip(case["episode_rewards"], case["trajectories"], strict=True):
        fields = []
        for t, row in enumerate(raw):
            tag, action = (
                re.search(p, row["output"]) for p in ("^<(planning|explore|reflection|monitor)>", "<action>(.*)<")
            )
            legible, there = row["is_action_valid"], row["action_available"]
            fields.append(
                {
                    "tag": tag and tag.group(1),
                    "action": action and action.group(1),
                    "validity": (Validity.VALID if there else Validity.INADMISSIBLE) if legible else Validity.MALFORMED,
                    "outcome": (SUCCESS if reward else FAILURE) if t == len(raw) - 1 else None,
                }
            )
        trajectories.append(fields)
    return chains(trajectories)


@pytest.mark.parametrize("w", [0.5, 1.0])
@pytest.mark.parametrize("normalise", ["std", "mean"])
def test_rlvmr_release(normalise: str, w: float) -> None:
    compared = 0
    for case in golden("rlvmr.json"):
        credit = rlvmr.assign(
            rlvmr_tree(case), rlvmr.RlvmrSettings(form="release", success_reward=10.0, normalise=normalise, w=w)
        )
        steps = [step for raw in case["trajectories"] for step in raw]
        close([row.parts["tag_reward"] for row in credit.steps], [step["step_reward"] for step in steps], VALUE)
        key = f"{'mean_std_norm' if normalise == 'std' else 'mean_norm'},w={w}"
        by_tag: dict[str, list[float]] = {}
        for step in steps:
            by_tag.setdefault(step["tag"], []).append(step["step_reward"])
        divides = normalise == "std"
        if divides and std([row.parts["trajectory"] for row in credit.steps]) == 0:
            continue
        for row, step, value in zip(credit.steps, steps, flat(case["advantage"][key]), strict=True):
            group = by_tag[step["tag"]]
            if divides and len(group) > 1 and std(group) < 1e-4 and step["tag"] != "none":
                continue
            assert row.advantage == pytest.approx(value, abs=STD)
            compared += 1
    assert compared > 350


def dpepo_tree(case: dict[str, Any]) -> Tree:
    """Actions for a copy that is not there are malformed moves: they count where the release counts them, in C_width."""
    trajectories = []
    for trajectory in case["trajectories"]:
        fields = []
        for t, row in enumerate(trajectory["steps"]):
            moves = [
                move(
                    int(copy),
                    action.strip(),
                    validity=Validity.VALID if copy in row["counts"] else Validity.MALFORMED,
                )
                for copy, action in row["parsed_actions"].items()
            ]
            last = t == len(trajectory["steps"]) - 1
            end = (SUCCESS if trajectory["episode_reward"] else FAILURE) if last else None
            fields.append({"moves": moves, "action": None, "outcome": end})
        trajectories.append(fields)
    return chains(trajectories)


@pytest.mark.parametrize("over", ["steps", "trajectories"])
def test_dpepo_release(over: str) -> None:
    compared = 0
    for case in golden("dpepo.json"):
        hyper = case["hyper"]
        settings = dpepo.DpepoSettings(
            form="release",
            over=over,
            alpha=hyper["depth_alpha"],
            omega=hyper["width_omega"],
            gamma=hyper["depth_t_gamma"],
            beta=hyper["width_t_beta"],
            invalid_factor=hyper["invalid_penalty"] if case["env"] == "sciworld" else None,
        )
        credit = dpepo.assign(dpepo_tree(case), settings)
        wanted = flat([[row["W_full"] for row in t["steps"]] for t in case["trajectories"]])
        close([row.parts["step"] for row in credit.steps], wanted, 5e-5 + 1e-9)
        key = "step_weighted" if over == "steps" else "step_weighted,cross_steps=False"
        base = grpo.assign(dpepo_tree(case), grpo.GrpoSettings(form="release", over=over, invalid_penalty=0.0))
        if over == "steps":
            close(advantages(base), flat(case["advantage"]["base_no_step_weight"]), STD)
        # The golden weights are rounded to four decimals before they multiply the advantage.
        largest = max(abs(x or 0.0) for x in advantages(base))
        close(advantages(credit), flat(case["advantage"][key]), STD * (1 + largest))
        compared += len(wanted)
    assert compared > 500
