"""The engine on the real simulator: scores and ends, keys, games that share a process, what it is told and does not understand."""

import random

import pytest
from agentcli.environments.protocol import LostEngineError, Observation
from agentcli.errors import EngineError
from agentcli.records.types import Task
from agentcli.worlds.scienceworld.engine import VARIATIONS, ScienceWorldEngine
from agentcli.worlds.scienceworld.simulator import ScienceGame, Simulator, rest
from agentcli.worlds.scienceworld.world import ScienceWorldWorld
from refusal import refused

WAY = (
    "open door to greenhouse",
    "go to greenhouse",
    "open bee hive",
    "wait",
    "look around",
    "wait",
    "go to outside",
    "wait",
)
"""What lets bees loose, which fly at random."""


def task(place: str) -> Task:
    kind = place.split("/")[1]
    return Task(id=place, world="scienceworld", split="train", kind=kind)


def begun(engine: ScienceWorldEngine, place: str, *actions: str) -> Observation:
    """What is observed after the actions."""
    observation = engine.start(task(place)).observation
    for action in actions:
        observation = engine.step(action)
    return observation


def test_the_simulators_own_solution_wins_all_points(engine: ScienceWorldEngine) -> None:
    start = engine.start(task("easy/find-animal/0"))
    assert start.instruction.startswith("find a(n) animal.")
    plan = engine.plan()
    assert len(plan) == 10
    observations = [engine.step(action) for action in plan]
    assert sum(observation.reward for observation in observations) == 100
    assert [observation.end for observation in observations] == [None] * 9 + ["success"]


def test_a_solution_is_followed_from_where_the_agent_stands(engine: ScienceWorldEngine) -> None:
    engine.start(task("easy/find-animal/0"))
    plan = engine.plan()
    for action in ("look around", plan[0], "inventory", plan[1], "what is this"):
        engine.step(action)
    assert engine.plan() == plan[2:]
    engine.step("go to hallway")
    refused(engine.plan, code=4, names="go to hallway")


def test_a_solution_is_asked_for_step_by_step(engine: ScienceWorldEngine) -> None:
    engine.start(task("easy/find-animal/0"))
    whole = engine.plan()
    assert "look around" in whole
    taken: list[str] = []
    ends: list[str | None] = [None]
    while ends[-1] is None:
        taken.append(engine.plan()[0])
        ends.append(engine.step(taken[-1]).end)
    assert (taken, ends[-1]) == (whole, "success")


def test_a_solution_is_computed_once_and_kept(world: ScienceWorldWorld, engine: ScienceWorldEngine) -> None:
    engine.start(task("easy/find-animal/0"))
    plan = engine.plan()
    other = world.engine()
    other.start(task("easy/find-animal/0"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScienceGame, "solve", lambda *_: pytest.fail("computed twice"))
        assert other.plan() == plan


def test_looking_around_is_no_step_of_a_solution() -> None:
    path = ("open", "look around", "focus", "move")
    assert rest(path, []) == list(path)
    assert rest(path, ["open", "look around"]) == ["focus", "move"]
    assert rest(path, ["open", "focus"]) == ["move"]
    assert rest(path, ["open", "inventory", "focus"]) == ["move"]
    with pytest.raises(EngineError):
        rest(path, ["focus"])


def test_focusing_on_the_wrong_thing_ends_without_points(engine: ScienceWorldEngine) -> None:
    before = begun(engine, "easy/find-living-thing/0", "go to greenhouse")
    after = engine.step("focus on shovel")
    assert (before.reward, after.reward, after.end) == (17.0, -17.0, "failure")


@pytest.mark.parametrize("noise", ["look around", "inventory", "task", "help", "sing", "open the moon"])
def test_noise_leads_back_to_the_same_state(engine: ScienceWorldEngine, noise: str) -> None:
    plain = begun(engine, "easy/boil/3", "go to kitchen", "open cupboard")
    noisy = begun(engine, "easy/boil/3", noise, "go to kitchen", noise, "open cupboard")
    assert (noisy.state, noisy.canonical) == (plain.state, plain.canonical)


@pytest.mark.parametrize(
    "other",
    [
        ("wait1", "go to kitchen", "open cupboard"),
        ("go to kitchen", "open cupboard", "open cupboard"),
        ("go to kitchen", "open fridge", "open cupboard", "close fridge"),
    ],
    ids=["time", "refused", "hidden"],
)
def test_what_cannot_be_seen_keeps_states_apart(engine: ScienceWorldEngine, other: tuple[str, ...]) -> None:
    plain = begun(engine, "easy/boil/3", "go to kitchen", "open cupboard")
    assert begun(engine, "easy/boil/3", *other).state != plain.state


def test_ways_that_look_the_same_meet_in_the_canonical_state(engine: ScienceWorldEngine) -> None:
    start = begun(engine, "easy/find-plant/0")
    back = begun(engine, "easy/find-plant/0", "go to kitchen", "go to hallway")
    assert back.canonical == start.canonical
    assert back.state != start.state


def test_where_a_goal_counts_actions_looking_is_one(engine: ScienceWorldEngine) -> None:
    plain = begun(engine, "easy/identify-life-stages-1/0")
    assert begun(engine, "easy/identify-life-stages-1/0", "look around").state != plain.state
    assert begun(engine, "easy/identify-life-stages-1/0", "sing").state == plain.state


def test_verdicts(engine: ScienceWorldEngine) -> None:
    begun(engine, "easy/find-plant/0")
    verdicts = {}
    for action in (
        "look around",
        "go to kitchen",
        "go to mars",
        "open kitchen",
        "open fridge",
        "open fridge",
        "focus on air",
    ):
        observation = engine.step(action)
        verdicts[action, len(verdicts)] = observation.accepted, observation.looked
    assert list(verdicts.values()) == [
        (True, True),
        (True, False),
        (False, False),
        (False, False),
        (True, False),
        (False, False),
        (True, False),
    ]


def test_a_question_back_is_answered_by_a_number(engine: ScienceWorldEngine) -> None:
    asked = begun(engine, "easy/find-plant/0", "go to greenhouse", "pick up flower pot")
    assert asked.text.startswith("Ambiguous request")
    answered = engine.step("0")
    assert "to the inventory" in answered.text
    assert len({asked.state, answered.state, begun(engine, "easy/find-plant/0", "go to greenhouse").state}) == 3


@pytest.mark.parametrize("action", ["", " ", "\x00", "open\nfridge", "\x1b[2J", "a" * 100_000, "\ud800", "💡", "<b>"])
def test_any_text_has_an_answer(engine: ScienceWorldEngine, action: str) -> None:
    before = begun(engine, "easy/boil/0")
    after = engine.step(action)
    assert not after.accepted
    assert (after.state, after.reward, after.end) == (before.state, 0.0, None)


@pytest.mark.parametrize(
    "place", ["easy/boil/30", "easy/bake/0", "boil/0", "easy/boil/-1", "easy/boil/x", "L0/1/2", "easy/boil/٣"]
)
def test_a_task_of_another_world_is_refused(engine: ScienceWorldEngine, place: str) -> None:
    other = Task(id=place, world="x", split="x", kind="x")
    refused(lambda: engine.start(other), code=3, names=place)


def test_a_task_of_other_simplifications_is_refused(engine: ScienceWorldEngine) -> None:
    refused(lambda: engine.start(task("plain/boil/0")), code=3, names="plain/boil/0", remedy="simplifications")


def test_a_way_that_is_retraced_leads_where_its_steps_lead(engine: ScienceWorldEngine) -> None:
    engine.start(task("easy/grow-plant/3"))
    stepped = [engine.step(action) for action in WAY]
    engine.start(task("easy/grow-plant/3"))
    assert [engine.retrace(action) for action in WAY[:-1]] == [one.text for one in stepped[:-1]]
    assert engine.step(WAY[-1]) == stepped[-1]


def trace(game: ScienceGame, actions: tuple[str, ...]) -> list[object]:
    seen: list[object] = [game.step(action) for action in actions]
    return [*seen, game._ask("getObjectTree", ""), game.look(), game.inventory(), game.things()]


def test_games_that_share_a_process_go_as_they_would_alone(world: ScienceWorldWorld) -> None:
    places = [
        (kind, number, simpler)
        for kind in ("grow-fruit", "find-plant", "boil")
        for number, simpler in ((0, "easy"), (9, ""))
    ]
    alone = {}
    for place in places:
        game = world.simulator.game()
        game.open(*place)
        alone[place] = trace(game, WAY)
    games = {place: world.simulator.game() for place in places}
    for place, game in games.items():
        game.open(*place)
    rng = random.Random(0)
    together: dict[object, list[object]] = {place: [] for place in places}
    turns = places * len(WAY)
    rng.shuffle(turns)
    for place in turns:
        games[place].things()
        together[place].append(games[place].step(WAY[len(together[place])]))
    for place, game in games.items():
        assert [*together[place], *trace(game, ())] == alone[place], place


def test_a_process_that_ends_is_not_the_tasks_fault() -> None:
    simulator = Simulator(256)
    game = simulator.game()
    game.open("boil", 0, "easy")
    simulator.close()
    with pytest.raises(LostEngineError):
        game.step("look around")


@pytest.mark.slow
def test_a_full_heap_ends_the_process() -> None:
    simulator = Simulator(128)
    with pytest.raises(LostEngineError):
        # Each holds 10 MB before its task is open.
        _ = [simulator.game() for _ in range(50)]
    simulator.close()


def test_a_task_that_the_simulator_lacks_is_an_error(world: ScienceWorldWorld) -> None:
    with pytest.raises(EngineError):
        world.simulator.game().open("bake", 0, "easy")
    assert "bake" not in VARIATIONS
