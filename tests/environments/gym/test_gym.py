"""Worlds of Gymnasium: what is shown, how actions are named, when an episode is won, and that forks are exact."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from agentcli.environments.gym.engine import plain, text_of
from agentcli.environments.protocol import Brief, Context, Engine, Forkable, Observation, Solvable
from agentcli.environments.registry import make_world
from agentcli.errors import EngineError
from agentcli.records.files import read_records
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Outcome, Task, Tree
from command_line import agentcli, succeeded
from gymnasium import spaces
from pools import grow, with_pool
from refusal import refused

LAKE = "gym:FrozenLake-v1"
MOVES = ["left", "down", "right", "up"]
STILL = {"is_slippery": False}
WAY = ["down", "down", "right", "right", "down", "right"]


def settings(name: str = LAKE, **options: Any) -> EnvironmentSettings:
    return EnvironmentSettings(name=name, options=options)


def opened(name: str = LAKE, seed: int = 0, **options: Any) -> tuple[Engine, Observation]:
    engine = make_world(settings(name, **options)).engine()
    return engine, engine.start(task(name, seed)).observation


def task(name: str = LAKE, seed: int = 0) -> Task:
    return Task(id=f"train/{seed}", world=name, split="train", kind="episode")


def walked(engine: Engine, *actions: str) -> list[Observation]:
    return [engine.step(action) for action in actions]


def test_the_goal_is_a_success_and_a_hole_a_failure() -> None:
    engine, first = opened(kwargs=STILL, actions=MOVES)
    assert (first.text, first.actions) == ("0", tuple(MOVES))
    last = walked(engine, *WAY)[-1]
    assert (last.text, last.reward, last.end, last.actions) == ("15", 1.0, "success", ())
    engine.start(task())
    fallen = walked(engine, "down", "right")[-1]
    assert (fallen.reward, fallen.end) == (0.0, "failure")


def test_its_own_time_limit_truncates() -> None:
    engine, _ = opened(kwargs={**STILL, "max_episode_steps": 2})
    assert [seen.end for seen in walked(engine, "0", "0")] == [None, "truncated"]


def test_a_trajectory_that_the_time_limit_ends_is_truncated_not_failed(empty_folder: Path) -> None:
    limit = ("--set", "environment.options.kwargs={is_slippery: false, max_episode_steps: 1}")
    succeeded("rollout", "--env", LAKE, *limit, "--policy", "random", "--tasks", "1", "--leaves", "2", "-q", "-o", "x")
    (tree,) = read_records(Path("x/trees.jsonl"), Tree)
    assert [step.outcome for step in tree.steps] == [Outcome.TRUNCATED] * 2


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"success": "terminated"}, "success"),
        ({"success": "return", "threshold": 2.5}, "success"),
        ({"success": "return", "threshold": 3.0}, "failure"),
        ({"success": "reward", "threshold": 1.0}, "failure"),
        ({"success": "reward"}, "success"),
    ],
)
def test_success_is_what_the_options_say(options: dict[str, Any], end: str) -> None:
    """Three steps of reward 1, then the environment ends the episode."""
    engine, _ = opened("gym:gym_worlds:Steps-v0", kwargs={"reward": 1.0}, **options)
    assert [seen.end for seen in walked(engine, "0", "1", "0")] == [None, None, end]


def test_a_reward_before_the_end_asks_what_success_is() -> None:
    """CartPole rewards every step, also the one in which the pole falls."""
    engine, _ = opened("gym:CartPole-v1")
    refused(lambda: engine.step("0"), code=4, names=("environment.options.success", "terminated"))


def test_an_unknown_action_changes_nothing() -> None:
    engine, first = opened(kwargs=STILL, actions=MOVES)
    (refusal,) = walked(engine, "2")
    assert not refusal.accepted
    assert (refusal.state, refusal.canonical, refusal.end) == (first.state, "0", None)
    assert refusal.text.endswith("\n0")
    after, straight = walked(engine, " right ")[0], walked(opened(kwargs=STILL, actions=MOVES)[0], "right")[0]
    assert after == straight


def test_words_are_actions_of_a_text_space() -> None:
    engine, first = opened("gym:gym_worlds:Echo-v0", seed=7)
    assert (first.text, first.actions) == ("Say word7.", ())
    assert not engine.step("no spaces!").accepted
    assert engine.step("word7").end == "success"


def test_a_mask_leaves_actions_out() -> None:
    _, first = opened("gym:Taxi-v4")
    assert 0 < len(first.actions) < 6


def test_one_seed_means_one_episode_and_splits_share_none() -> None:
    """The lake is slippery: the same actions lead elsewhere with another seed."""
    ways = [tuple(seen.text for seen in walked(opened(seed=seed)[0], *"1212")) for seed in (1, 1, 2, 3, 4)]
    assert ways[0] == ways[1]
    assert len(set(ways)) > 1
    world = make_world(settings(seeds={"train": 3, "test": 2}))
    ids = [one.id for split in world.card.splits for one in world.tasks(split)]
    assert (len(set(ids)), len(world.tasks("train")), len(world.tasks("test"))) == (105, 3, 2)


def test_state_keys_tell_histories_apart_unless_the_text_says_all() -> None:
    for markov, same in ((False, False), (True, True)):
        engine, first = opened(kwargs=STILL, markov=markov)
        back = walked(engine, "2", "0")[-1]
        assert back.canonical == first.canonical == "0"
        assert (back.state == first.state) is same


@pytest.mark.parametrize("options", [{}, {"snapshots": True}])
def test_forks_are_exact(options: dict[str, Any]) -> None:
    """The same random tree with copies and with replays, on the slippery lake."""
    one = settings(**options)
    assert isinstance(make_world(one).engine(), Forkable) is bool(options)

    async def grown(pool: Any) -> list[tuple[tuple[str, ...], Observation]]:
        states = await grow(pool, task(), 3, 40, ("0", "1", "2", "3", "fly"))
        return [(state.actions, state.observation) for state in states]

    states = with_pool(one, grown)
    for actions, observation in states[1:]:
        assert walked(opened()[0], *actions)[-1] == observation


def test_env_check_passes() -> None:
    assert agentcli("env", "check", LAKE, "--tasks", "2", "-q").code == 0


def test_spaces_are_texts() -> None:
    box = spaces.Box(-1, 1, (2,), np.float32)
    both = spaces.Dict({"at": spaces.Discrete(5), "speed": box})
    value = {"at": np.int64(3), "speed": np.array([0.123456, -1])}
    assert text_of(both, value) == "at: 3\nspeed: 0.1235 -1"
    assert text_of(spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3))), (1, np.array([0, 1, 1]))) == "1, 0 1 1"
    assert text_of(spaces.MultiDiscrete([20000, 20000]), np.array([12345, 12346])) == "12345 12346"
    assert text_of(spaces.Box(0, 99999, (2,), np.int64), np.array([12349, 7])) == "12349 7"
    assert text_of(spaces.Box(0, 1, (2,), np.bool_), np.array([True, False])) == "1 0"
    assert plain("\n\x1b[41mS\x1b[0mFFF\nFHFH\n") == "[S]FFF\nFHFH"


def test_a_rendering_and_a_function_are_texts() -> None:
    _, drawn = opened(kwargs={"render_mode": "ansi"})
    assert "[S]FFF" in drawn.text
    _, told = opened(text="gym_worlds:words")
    assert told.text == "You stand on tile 0."
    engine = make_world(settings(text="gym_worlds:no_words")).engine()
    with pytest.raises(EngineError, match=r"environment\.options\.text"):
        engine.start(task())


def test_a_reward_that_is_no_number_is_refused() -> None:
    engine, _ = opened("gym:gym_worlds:Steps-v0", kwargs={"reward": float("nan")})
    with pytest.raises(EngineError, match="nan"):
        engine.step("0")


@pytest.mark.parametrize(
    ("name", "options", "names"),
    [
        (LAKE, {"kwargs": {"map_name": "9x9"}}, ("environment.options.kwargs", "9x9")),
        (LAKE, {"actions": ["left", "right"]}, ("environment.options.actions", "4 actions")),
        (LAKE, {"actions": ["a", "a", "b", "c"]}, ("environment.options.actions",)),
        (LAKE, {"text": "gym_worlds:nothing"}, ("environment.options.text", "nothing")),
        (LAKE, {"sucess": "return"}, ("environment.options.sucess", "success")),
        (LAKE, {"success": "luck"}, ("environment.options.success", "terminated")),
        ("gym:gym_worlds:Pixels-v0", {}, ("Pixels-v0", "192 numbers", "environment.options.text")),
        ("gym:gym_worlds:Throttle-v0", {}, ("Throttle-v0", "Box")),
    ],
)
def test_what_cannot_be_played_is_refused(name: str, options: dict[str, Any], names: tuple[str, ...]) -> None:
    refused(lambda: make_world(settings(name, **options)).engine(), names=names)


@pytest.mark.parametrize("kwargs", [{"shared": True}, {"copies": False}])
def test_copies_that_are_not_exact_are_refused(kwargs: dict[str, Any]) -> None:
    name = "gym:gym_worlds:Steps-v0"
    engine = make_world(settings(name, kwargs=kwargs, snapshots=True)).engine()
    refused(lambda: engine.start(task(name)), names="environment.options.snapshots", remedy="leave the option out")


def test_an_unknown_id_and_a_missing_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(agentcli("env", "check", "gym:FrozenLak-v1"), names=("gym:FrozenLak-v1", "FrozenLake"))
    refused(agentcli("env", "check", "gym:nowhere.at.all:X-v0"), 4, names="nowhere")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    refused(agentcli("env", "check", LAKE), 4, names=LAKE, remedy="agentcli[gym]")


def test_a_function_may_plan_and_is_given_a_copy() -> None:
    engine, _ = opened(kwargs=STILL, actions=MOVES, plan="gym_worlds:way_over_the_lake")
    assert isinstance(engine, Solvable)
    engine.step("down")
    plan = engine.plan()
    assert plan == engine.plan() == ["down", "right", "down", "right", "right"]
    assert walked(engine, *plan)[-1].end == "success"
    assert not isinstance(opened()[0], Solvable)


def test_the_short_prompt_is_the_last_text_of_the_world_and_the_last_action() -> None:
    made = make_world(settings())
    assert isinstance(made, Brief)
    seen = ("at 0", "at 4", "Your response held no action.")
    context = Context(task=task(), instruction="", observations=seen, actions=("down", ""))
    assert made.compact(context) == "at 4\nlast down"
    start = Context(task=task(), instruction="", observations=seen[:1])
    assert made.compact(start) == "at 0\nlast nothing"


def test_a_task_of_another_world_is_refused() -> None:
    engine, _ = opened()
    other = msgspec.structs.replace(task(), id="pick/two")
    refused(lambda: engine.start(other), 4, names="pick/two")
