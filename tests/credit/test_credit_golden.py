"""The release form of grpo, spark and rewardflow against numbers from the authors' own code (tests/golden/README.md)."""

import math
import re
from typing import Any

import pytest
from agentcli.credit import grpo, rewardflow, spark
from agentcli.credit.graph import build
from agentcli.credit.release.rewardflow import only_looks, propagated, release_walk
from agentcli.credit.survey import survey_of
from agentcli.credit.switches import Switches
from agentcli.records.types import Tree, Validity
from credit_trees import FAILURE, SUCCESS, TRUNCATED, advantages, chains, golden, outcomes, step, tree

VALUE, STD = 1e-5, 5e-5


def std(values: list[float]) -> float:
    """Spread of a group, to skip those in which the release divides rounding noise."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))


def close(computed: list[float | None], wanted: list[float], tolerance: float) -> None:
    assert len(computed) == len(wanted)
    assert max(abs((a if a is not None else math.nan) - b) for a, b in zip(computed, wanted, strict=True)) <= tolerance


@pytest.mark.parametrize("normalise", ["std", "mean"])
@pytest.mark.parametrize("over", ["steps", "trajectories"])
def test_grpo_release(normalise: str, over: str) -> None:
    key = f"std={normalise == 'std'},cross_steps={over == 'steps'}"
    compared = 0
    for case in golden("grpo.json"):
        for uid in sorted(set(case["uid"])):
            members = [i for i, name in enumerate(case["uid"]) if name == uid]
            wrong = {(n, t) for n, i in enumerate(members) for t, ok in enumerate(case["valid"][i]) if not ok}
            ends = [SUCCESS if case["episode_rewards"][i] else FAILURE for i in members]
            settings = grpo.GrpoSettings(
                form="release",
                success_reward=10.0,
                invalid_penalty=case["invalid_coef"],
                normalise=normalise,
                over=over,
            )
            scores = [case["episode_score_after_penalty"][i] for i in members]
            group = [x for row in scores for x in row] if over == "steps" else [row[0] for row in scores]
            if normalise == "std" and std(group) < 1e-4:
                continue
            computed = advantages(
                grpo.assign(outcomes([case["traj_lengths"][i] for i in members], ends, wrong), settings)
            )
            wanted = [x for i in members for x in case["advantage"][key][i]]
            close(computed, wanted, STD if normalise == "std" else VALUE)
            compared += 1
    assert compared >= 20


def spark_tree(leaves: list[dict[str, Any]], invalid: dict[str, bool]) -> tuple[Tree, list[str]]:
    """The tree of one sample and the golden node name of every step. A leaf that was branched from a finished trajectory (the
    release does that) repeats its last node; it becomes a sibling step of its own."""
    steps, names, position = [], [], {}
    for leaf in leaves:
        parent = None
        for depth, name in enumerate(leaf["nodes"]):
            last = depth == len(leaf["nodes"]) - 1
            if name not in position or last:
                position[name] = len(steps)
                names.append(name)
                wrong = Validity.INADMISSIBLE if invalid[name] else Validity.VALID
                end = (SUCCESS if leaf["reward"] else FAILURE) if last else None
                steps.append(step(len(steps), parent, validity=wrong, outcome=end))
            parent = position[name]
    return tree(*steps), names


@pytest.mark.parametrize("mode", ["mean_norm", "mean_std_norm"])
@pytest.mark.parametrize("prefix", ["duplicate", "merge"])
def test_spark_release(mode: str, prefix: str) -> None:
    compared = 0
    unique = prefix == "merge"
    for case in golden("spark.json"):
        rows = case["unique_rows" if unique else "per_leaf_step_rows"]
        advantage = case[f"advantage_env_unique_{unique}"][mode]
        for uid in sorted({leaf["uid"] for leaf in case["leaves"]}):
            leaves = [leaf for leaf in case["leaves"] if leaf["uid"] == uid]
            if unique and len({leaf["nodes"][-1] for leaf in leaves}) < len(leaves):
                continue
            chosen = [number for number, row in enumerate(rows) if row["uid"] == uid]
            if mode == "mean_std_norm" and std([rows[i]["score_after_penalty"] for i in chosen]) < 1e-4:
                continue
            grown, names = spark_tree(leaves, {row["node"]: not row["valid"] for row in rows})
            normalise = "std" if mode == "mean_std_norm" else "mean"
            credit = spark.assign(grown, spark.SparkSettings(form="release", prefix=prefix, normalise=normalise))
            if unique:
                wanted = {rows[i]["node"]: advantage[i] for i in chosen}
                assert sorted(wanted) == sorted(names)
                close(advantages(credit), [wanted[names[row.step]] for row in credit.steps], STD)
            else:
                assert [names[row.step] for row in credit.steps] == [rows[i]["node"] for i in chosen]
                close(advantages(credit), [advantage[i] for i in chosen], STD)
            compared += 1
    assert compared >= 8


def rewardflow_groups() -> Any:
    """(case, group number, first trajectory number, tree, settings) of every golden group. Keys are the golden ones."""
    for case in golden("rewardflow.json"):
        first, loop = 0, case["input"]["global_loop_steps"]
        for number, group in enumerate(case["input"]["groups"]):
            trajectories = []
            for i, raw in enumerate(group["trajectories"]):
                keys = case["node_keys_used_for_step_groups"][first + i]
                fields = []
                for t, row in enumerate(raw):
                    said = re.search("<action>(.*)</action>", row["response"])
                    last = t == len(raw) - 1
                    ended = SUCCESS if row["env_reward"] else TRUNCATED if len(raw) == loop else FAILURE
                    fields.append(
                        {
                            "state": keys[t],
                            "next_state": "" if last else keys[t + 1],
                            "next_observation": case["input"]["final_obs"][number][i] if last else raw[t + 1]["obs"],
                            "action": said and said.group(1),
                            "validity": Validity.VALID if row["is_action_valid"] else Validity.MALFORMED,
                            "outcome": ended if last else None,
                        }
                    )
                trajectories.append(fields)
            switches = {
                "form": "release",
                "success_reward": 10.0,
                "gamma": case["gamma"],
                "invalid_penalty": case["invalid_coef"],
                "loop_steps": loop,
            }
            yield case, number, first, chains(trajectories), switches
            first += len(trajectories)


def test_rewardflow_release_values_and_step_rewards() -> None:
    groups = 0
    for case, number, first, grown, switches in rewardflow_groups():
        credit = rewardflow.assign(grown, rewardflow.RewardFlowSettings(**switches))
        count = len(case["input"]["groups"][number]["trajectories"])
        for name, part in (("step_rewards", "gain"), ("step_values_next", "next_value")):
            wanted = [x for row in case[name][first : first + count] for x in row]
            close([row.parts[part] for row in credit.steps], wanted, VALUE)
        values = dict(zip(*(case["graph"][number][name] for name in ("states", "values")), strict=True))
        lost = {row.step for row in credit.steps if grown.steps[row.step].outcome is TRUNCATED}
        lost |= {s.id for s in grown.steps if s.outcome and depth(grown, s.id) == switches["loop_steps"]}
        kept = [row for row in credit.steps if row.step not in lost]
        close([r.parts["value"] for r in kept], [values[grown.steps[r.step].state] for r in kept], VALUE)
        groups += 1
    assert groups >= 24


def depth(grown: Tree, number: int) -> int:
    parent = grown.steps[number].parent
    return 1 if parent is None else 1 + depth(grown, parent)


@pytest.mark.parametrize("mode", ["mean_norm", "mean_std_norm"])
def test_rewardflow_release_advantages(mode: str) -> None:
    compared = {"trajectory": 0, "action": 0}
    for case, number, first, grown, switches in rewardflow_groups():
        both = {"normalise": "std", "scale": "std"} if mode == "mean_std_norm" else {"normalise": "mean"}
        credit = rewardflow.assign(grown, rewardflow.RewardFlowSettings(**switches, **both))
        count = len(case["input"]["groups"][number]["trajectories"])
        total, episode, score, reward = (
            [x for row in table[first : first + count] for x in row]
            for table in (
                case["advantage"][mode]["total"],
                case["advantage"][mode]["episode"],
                case["episode_score_after_penalty"],
                case["step_rewards_after_penalty"],
            )
        )
        by_state: dict[str, list[float]] = {}
        for state, value in zip((s.state for s in grown.steps), reward, strict=True):
            by_state.setdefault(state, []).append(value)
        for row, all_, trajectory in zip(credit.steps, total, episode, strict=True):
            action_group = by_state[grown.steps[row.step].state]
            divides = mode == "mean_std_norm"
            if not (divides and std(score) < 1e-4):
                assert row.parts["trajectory"] == pytest.approx(trajectory, abs=STD)
                compared["trajectory"] += 1
            if not (divides and len(action_group) > 1 and std(action_group) < 1e-4):
                assert row.parts["action"] == pytest.approx(all_ - trajectory, abs=STD)
                compared["action"] += 1
            assert row.advantage == pytest.approx(row.parts["trajectory"] + row.parts["action"], abs=1e-12)
    assert min(compared.values()) > 800


def test_propagation_is_the_release_fixed_point() -> None:
    for case in golden("units.json", "propagation"):
        triples = [(str(a), str(b), float(reward)) for a, _, b, _, reward in case["triples"]]
        computed = propagated(triples, case["gamma"])
        assert {k: pytest.approx(v, abs=VALUE) for k, v in case["values"].items()} == computed


@pytest.mark.parametrize("form", ["paper", "release"])
def test_walk_is_the_release_cleaning(form: str) -> None:
    """Both walks keep the transitions that clean_trajectory of the release keeps, trajectory by trajectory.

    The paper form is that of a world which says `looked` of what the release finds by its words. It is not asked about steps from
    a state to itself, which it always prunes and the release keeps when they come after noise."""
    compared = 0
    for case in golden("units.json", "clean_alfworld"):
        states = case["idx_to_state"]
        for raw, cleaned in zip(case["transitions"], case["cleaned_alfworld"], strict=True):
            if form == "paper" and any(a == b for a, _, b, *_ in raw):
                continue
            fields: list[dict[str, Any]] = [
                {
                    "state": states[str(a)],
                    "next_state": states[str(b)],
                    "action": act,
                    "next_observation": states[str(b)],
                    "looked": only_looks(act) or states[str(b)].startswith("Nothing happens"),
                }
                for a, act, b, *_ in raw
            ]
            fields.append({"state": "end", "next_state": "end", "outcome": TRUNCATED})
            grown = chains([fields])
            if form == "release":
                walked = [
                    pair[:2]
                    for pair in release_walk(
                        grown, survey_of(grown, Switches()), rewardflow.RewardFlowSettings(form="release")
                    )[1]
                ]
            else:
                graph = build(grown)
                ends = zip(graph.sources, graph.targets, graph.pruned, strict=True)
                walked = [(graph.nodes[a].key, graph.nodes[b].key) for a, b, pruned in ends if not pruned]
            assert walked == [(states[str(a)], states[str(b)]) for a, _, b, *_ in cleaned]
            compared += 1
    assert compared == (48 if form == "release" else 18)
