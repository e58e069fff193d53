"""The tunnel: every knob does what it says, forks are exact, values and gradients are those of the game."""

import random
from typing import Any

import numpy as np
import pytest
from agentcli.environments.protocol import Context, Forkable, Solvable, Tutor
from agentcli.environments.registry import make_world
from agentcli.errors import DataError, EngineError
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.tunnel.exact import Exact, policy_at, solve
from agentcli.worlds.tunnel.rules import Spot, Tunnel, TunnelOptions, draw_game
from agentcli.worlds.tunnel.world import TunnelEngine, TunnelHabits, TunnelWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import play

KNOBS = st.builds(
    TunnelOptions,
    decisions=st.integers(1, 3),
    doors=st.integers(2, 4),
    forced=st.integers(0, 3),
    signs=st.integers(1, 3),
    secret=st.booleans(),
    wrong=st.sampled_from(["on", "back", "end"]),
    detour=st.integers(0, 2),
    told=st.booleans(),
    alike=st.booleans(),
    turns=st.booleans(),
    looks=st.integers(0, 2),
    knocks=st.integers(0, 2),
    reward=st.sampled_from(["end", "graded", "each"]),
)


def world(**options: object) -> TunnelWorld:
    return TunnelWorld(EnvironmentSettings(name="tunnel", options=options))


def opened(index: int = 0, **options: object) -> TunnelEngine:
    """An engine at the start of a game."""
    made = world(**options)
    engine = made.engine()
    engine.start(made.tasks("train")[index])
    return engine


def wrong_door(game: Tunnel, passage: int = 0) -> str:
    doors = [action for action in game.actions(Spot(passage, game.options.forced)) if action.startswith("open")]
    return next(door for door in doors if door != f"open {game.right[passage]}")


def test_it_is_made_by_its_name_and_has_its_capabilities() -> None:
    made = make_world(EnvironmentSettings(name="tunnel"))
    assert isinstance(made, Tutor)
    assert isinstance(made.engine(), Forkable)
    assert isinstance(made.engine(), Solvable)


def test_a_game_is_refused_under_other_knobs() -> None:
    task = world(doors=2).tasks("train")[0]
    with pytest.raises(DataError, match=task.id):
        world(doors=3).engine().start(task)


@settings(deadline=None, max_examples=60)
@given(KNOBS, st.integers(0, 5))
def test_the_plan_wins_with_a_reward_of_one_in_the_fewest_steps(options: TunnelOptions, index: int) -> None:
    engine = TunnelEngine(options)
    made = world()
    made.options = options
    engine.start(made.tasks("train")[index])
    plan = engine.plan()
    seen = [engine.step(action) for action in plan]
    assert [one.end for one in seen] == [None] * (len(plan) - 1) + ["success"]
    assert sum(one.reward for one in seen) == pytest.approx(1.0)
    assert len(plan) == options.decisions * (options.forced + 1)
    assert not any(one.looked or not one.accepted for one in seen)


def test_a_wrong_door_leads_on_and_the_game_is_lost_at_its_end() -> None:
    engine = opened(decisions=2, forced=0)
    first = engine.step(wrong_door(engine.game))
    assert (first.end, first.reward, first.text) == (None, 0.0, "passage 2 doors sign owl")
    with pytest.raises(EngineError):
        engine.plan()
    assert engine.step(f"open {engine.game.right[1]}").end == "failure"


def test_a_wrong_door_ends_the_game_or_leads_back() -> None:
    ending = opened(wrong="end", forced=0)
    assert ending.step(wrong_door(ending.game)).end == "failure"
    back = opened(wrong="back", forced=0, detour=2)
    texts = [back.step(action).text for action in (wrong_door(back.game), "go on", "go on")]
    assert texts == [
        "wrong door, passage 1 detour 2 to doors",
        "passage 1 detour 1 to doors",
        "passage 1 doors sign owl",
    ]
    assert back.plan() == [f"open {door}" for door in back.game.right]


@pytest.mark.parametrize(
    ("reward", "paid"), [("end", [0, 0, 0]), ("graded", [0, 0, 2 / 3]), ("each", [1 / 3, 0, 1 / 3])]
)
def test_rewards_of_two_right_doors_of_three(reward: str, paid: list[float]) -> None:
    engine = opened(decisions=3, forced=0, reward=reward)
    right = engine.game.right
    actions = [f"open {right[0]}", wrong_door(engine.game, 1), f"open {right[2]}"]
    assert [engine.step(action).reward for action in actions] == pytest.approx(paid)


def test_graded_counts_no_door_that_was_never_reached() -> None:
    engine = opened(decisions=4, forced=0, reward="graded", wrong="end")
    assert engine.step(wrong_door(engine.game)).reward == 0.0


def test_looks_and_knocks_do_nothing_and_turns_go_back() -> None:
    engine = opened(looks=1, knocks=1, turns=True)
    before = engine.step("go on")
    look, knock, unknown = engine.step("look 1"), engine.step("knock 1"), engine.step("fly")
    assert (look.state, look.looked, look.accepted) == (before.state, True, True)
    assert (knock.state, knock.looked, knock.accepted) == (before.state, False, False)
    assert (unknown.state, unknown.accepted) == (before.state, False)
    turned = engine.step("turn back")
    assert (turned.accepted, turned.text) == (True, "passage 1 tunnel 3 to doors")
    assert not engine.step("turn back").accepted


@pytest.mark.parametrize("wrong", ["on", "back", "end"])
def test_a_door_that_is_not_there_is_refused(wrong: str) -> None:
    engine = opened(forced=0, doors=2, wrong=wrong)
    before = engine.restore(engine.snapshot())
    after = engine.step("open violet")
    assert (after.state, after.accepted, after.text) == (before.state, False, before.text)


def test_a_door_tried_from_afar_is_not_forgotten_with_those_before() -> None:
    made = world(secret=True, wrong="back", forced=0, detour=1)
    engine = made.engine()
    task = made.tasks("train")[0]
    first = engine.start(task).observation
    door = wrong_door(engine.game)
    texts, actions = [first.text], (door, door, "go on")
    texts += [engine.step(action).text for action in actions]
    context = Context(task=task, instruction="", observations=tuple(texts), actions=actions)
    assert f"tried {door.split()[1]}" in made.compact(context).split("\n")


def test_passages_that_look_alike_share_their_papers_state_only() -> None:
    engine = opened(alike=True, decisions=2, forced=1)
    states = [engine.start(world(alike=True, decisions=2, forced=1).tasks("train")[0]).observation]
    states += map(engine.step, engine.plan()[:-1])
    assert [one.text for one in states] == ["tunnel", "doors sign owl"] * 2
    assert [one.canonical for one in states] == [one.text for one in states]
    assert len({one.state for one in states}) == 4


def test_a_wrong_door_is_told_only_where_it_is_asked_for() -> None:
    silent, telling = opened(forced=0), opened(forced=0, told=True)
    for engine, prefix in ((silent, ""), (telling, "wrong door, ")):
        after = engine.step(wrong_door(engine.game))
        assert (after.text, after.canonical) == (f"{prefix}passage 2 doors sign owl", "passage 2 doors sign owl")


def test_signs_mean_the_same_in_every_game_and_secrets_do_not() -> None:
    options = world(signs=4).options
    meant: dict[tuple[int, str], set[str]] = {}
    for index in range(200):
        game = draw_game(options, "train", index)
        for passage, sign in enumerate(game.signs):
            meant.setdefault((passage, sign), set()).add(game.right[passage])
    assert len(meant) == 8
    assert {len(doors) for doors in meant.values()} == {1}
    assert len({draw_game(world(secret=True).options, "train", index).right for index in range(200)}) == 16


@settings(deadline=None, max_examples=60)
@given(KNOBS, st.integers(0, 2**32))
def test_a_snapshot_gives_back_the_place_and_what_was_seen(options: TunnelOptions, seed: int) -> None:
    made = world()
    made.options = options
    engine = made.engine()
    rng = random.Random(seed)
    kept = [(engine.start(made.tasks("test")[0]).observation, engine.snapshot())]
    for _ in range(12):
        seen, snapshot = rng.choice(kept)
        assert engine.restore(snapshot) == seen
        after = engine.step(rng.choice([*seen.actions, "fly"]))
        if after.end is None:
            kept.append((after, engine.snapshot()))


@settings(deadline=None, max_examples=60)
@given(KNOBS, st.integers(0, 2**32))
def test_the_searching_expert_wins_and_its_prompt_tells_enough(options: TunnelOptions, seed: int) -> None:
    """Also where it must try: every door costs one step and a detour. A secret behind doors that lead on is a guess."""
    made = world()
    made.options = options
    context, end = played(made, seed, TunnelHabits())
    if not options.secret or options.wrong == "back":
        assert end == "success"
    assert context.observations[-1] in made.compact(context)


def played(made: TunnelWorld, seed: int, habits: TunnelHabits) -> tuple[Context, str | None]:
    """The context in front of the last action of the searching expert, and how its game ended."""

    def choose(context: Context) -> str:
        action = made.next(context, seed, habits).action
        assert action in context.admissible
        return action

    contexts, last = play(made.engine(), made.tasks("train")[0], choose, 200)
    return contexts[-2 if last.end else -1], last.end


def test_the_prompt_names_the_doors_that_were_tried() -> None:
    made = world(secret=True, wrong="back", forced=0, detour=0)
    engine = made.engine()
    task = made.tasks("train")[0]
    first = engine.start(task).observation
    door = wrong_door(engine.game)
    second = engine.step(door)
    context = Context(task=task, instruction="", observations=(first.text, second.text), actions=(door,))
    assert made.compact(context).split("\n") == [second.text, f"tried {door.split()[1]}", f"last {door}"]


UNREADABLE = "The response held no readable action."


def test_after_an_unreadable_response_the_tutor_goes_by_the_last_text_of_the_world() -> None:
    made = world(signs=4, forced=0)
    engine = made.engine()
    for task in made.tasks("train")[:20]:
        first = engine.start(task).observation
        context = Context(
            task=task,
            instruction="",
            observations=(first.text, UNREADABLE),
            actions=("",),
            admissible=first.actions,
        )
        assert made.compact(context) == f"{first.text}\nlast nothing"
        assert made.next(context, 1, TunnelHabits()).action == engine.plan()[0]


def test_a_door_opened_after_an_unreadable_response_or_beside_another_copy_was_tried() -> None:
    made = world(secret=True, wrong="back", forced=0, detour=1)
    engine = made.engine()
    task = made.tasks("train")[0]
    first = engine.start(task).observation.text
    door = wrong_door(engine.game)
    after = [engine.step(action).text for action in (door, "go on")]
    unreadable = Context(
        task=task,
        instruction="",
        observations=(first, UNREADABLE, *after),
        actions=("", door, "go on"),
    )
    # What another copy has seen stands before.
    pooled = Context(
        task=task,
        instruction="",
        observations=(first, "passage 2 doors", first, *after),
        actions=(door, "go on"),
    )
    for context in (unreadable, pooled):
        assert made.compact(context).split("\n") == [first, f"tried {door.split()[1]}", "last go on"]


def test_strays_open_any_door_and_dawdling_takes_any_action() -> None:
    made = world(signs=2, looks=2)
    ends = [played(made, seed, TunnelHabits(overlook=1.0))[1] for seed in range(300)]
    assert ends.count("success") / 300 == pytest.approx(1 / 16, abs=0.04)
    context, _ = played(made, 1, TunnelHabits(wander=0.9))
    assert {"look 1", "look 2"} <= set(context.actions)


# What is exact.


def tables(options: TunnelOptions, seed: int) -> dict[str, Any]:
    """Random logits at every view of a game."""
    rng = np.random.default_rng(seed)
    exact = solve(draw_game(options, "train", 0), {}, 9)
    return {view: rng.normal(size=row.shape) for view, row in exact.gradient.items()}


def test_a_uniform_policy_wins_with_the_chance_of_guessing() -> None:
    exact = solve(draw_game(world(decisions=2, doors=6, forced=9).options, "train", 0), {}, 20)
    assert (exact.value, exact.success, exact.steps) == pytest.approx((1 / 36, 1 / 36, 20))


def test_the_gradient_of_one_decision_is_that_of_a_bandit() -> None:
    """d J / d logit(a) = pi(a) (r(a) - J)."""
    game = draw_game(world(decisions=1, doors=3, forced=2).options, "train", 0)
    logits = np.array([0.3, -1.0, 0.5])
    view = "passage 1 doors sign owl"
    chances = policy_at({view: logits}, view, 3)
    won = np.array([action == f"open {game.right[0]}" for action in game.actions(Spot(0, 2))])
    exact = solve(game, {view: logits}, 3)
    assert exact.gradient[view] == pytest.approx(chances * (won - chances @ won))


@settings(deadline=None, max_examples=25)
@given(KNOBS, st.integers(0, 2**32))
def test_gradients_are_those_of_finite_differences(options: TunnelOptions, seed: int) -> None:
    game = draw_game(options, "train", 0)
    table = tables(options, seed)
    exact = solve(game, table, 9)
    rng = random.Random(seed)
    view = rng.choice(sorted(table))
    index = rng.randrange(len(table[view]))

    def value(shift: float) -> float:
        moved = {**table, view: table[view] + shift * np.eye(len(table[view]))[index]}
        return solve(game, moved, 9).value

    assert exact.gradient[view][index] == pytest.approx((value(1e-5) - value(-1e-5)) / 2e-5, abs=1e-8)


@settings(deadline=None, max_examples=15)
@given(KNOBS, st.integers(0, 2**32))
def test_values_are_the_means_of_played_games(options: TunnelOptions, seed: int) -> None:
    game = draw_game(options, "train", 0)
    table = tables(options, seed)
    exact = solve(game, table, 9)
    rng = random.Random(seed)
    returns = [sampled(game, table, rng) for _ in range(1500)]
    error = 5 * np.std(returns) / np.sqrt(len(returns)) + 1e-9 + 5 * (exact.value < 0.01) / 1500
    assert np.mean(returns) == pytest.approx(exact.value, abs=error)


def sampled(game: Tunnel, table: dict[str, Any], rng: random.Random) -> float:
    """The return of one game of at most nine steps."""
    place, total = Spot(), 0.0
    for _ in range(9):
        actions = game.actions(place)
        if not actions:
            break
        action = rng.choices(actions, policy_at(table, game.view(place), len(actions)))[0]
        after = game.after(place, action)
        total += game.reward(place, after)
        place = after
    return total


def test_gradients_at_a_view_sum_to_zero() -> None:
    """A softmax does not change when all its logits rise alike."""
    options = TunnelOptions(wrong="back", turns=True, looks=1, knocks=1, secret=True)
    exact: Exact = solve(draw_game(options, "train", 3), tables(options, 1), 9)
    assert max(abs(row.sum()) for row in exact.gradient.values()) < 1e-15
