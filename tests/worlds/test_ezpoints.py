"""EZPoints: rules as in Gym Cards, deals that can be won and belong to one split, exact forks, an expert, a tutor."""

import ast
import random

import pytest
from agentcli.environments.protocol import Context, Forkable, Observation, Solvable, Tutor
from agentcli.environments.registry import make_world
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.ezpoints import (
    ACTIONS,
    BLANK,
    TARGET,
    EzPointsEngine,
    EzPointsHabits,
    EzPointsWorld,
    PlayingCard,
    deal_of,
    read,
    solutions,
    unused,
    value,
)
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused


def world(**options: object) -> EzPointsWorld:
    return EzPointsWorld(EnvironmentSettings(name="ezpoints", options=options))


def dealt(first: str, second: str) -> EzPointsEngine:
    """An engine with two cards of these ranks before it."""
    engine = world().engine()
    engine.start(world().tasks("train")[0])
    engine._deal = PlayingCard(first, "hearts"), PlayingCard(second, "spades")
    return engine


def played(engine: EzPointsEngine, actions: str) -> list[Observation]:
    return [engine.step(action) for action in actions.split()]


def context(task: Task, *observations: Observation) -> Context:
    texts = tuple(observation.text for observation in observations)
    return Context(task=task, instruction="", observations=texts, actions=("",) * (len(texts) - 1))


def test_it_is_made_by_its_name_and_has_every_capability() -> None:
    made = make_world(EnvironmentSettings(name="ezpoints"))
    engine = made.engine()
    assert isinstance(made, Tutor)
    assert isinstance(engine, Forkable)
    assert isinstance(engine, Solvable)


@pytest.mark.parametrize(
    ("ranks", "actions", "rewards", "end"),
    [
        (("3", "9"), "3 + 9 =", [0, 0, 0, 10], "success"),
        (("9", "3"), "3 + 9 =", [0, 0, 0, 10], "success"),
        (("3", "4"), "4 * 3 =", [0, 0, 0, 10], "success"),
        (("K", "2"), "10 + 2 =", [0, 0, 0, 10], "success"),
        (("6", "6"), "6 + 6 =", [0, 0, 0, 10], "success"),
        (("3", "4"), "3 + 4 =", [0, 0, 0, -1], "failure"),
        (("3", "9"), "=", [-1], "failure"),
        # A number that is on no card leaves a blank, which counts as nothing.
        (("3", "9"), "5 3 + 9 =", [-1, 0, 0, 0, 10], "success"),
        # A card is used once.
        (("3", "9"), "3 + 3 =", [0, 0, -1, -1], "failure"),
        # What Python reads as a sign of the number is no addition.
        (("3", "9"), "3 + + 9 =", [0, 0, 0, 0, 10], "success"),
        (("3", "4"), "3 * * 4 =", [0, 0, 0, 0, -1], "failure"),
        # Six signs are written; then whatever follows ends it.
        (("3", "9"), "+ + + 3 + 9 =", [0, 0, 0, 0, 0, 0, -1], "failure"),
    ],
)
def test_rewards_are_those_of_gym_cards(ranks: tuple[str, str], actions: str, rewards: list[float], end: str) -> None:
    observations = played(dealt(*ranks), actions)
    assert [observation.reward for observation in observations] == rewards
    assert [observation.end for observation in observations] == [None] * (len(rewards) - 1) + [end]


@pytest.mark.parametrize("action", ["5", "11", "3 + 9", "", "\x1b[31m"])
def test_what_cannot_be_written_is_not_accepted_and_takes_a_place(action: str) -> None:
    observation = dealt("3", "9").step(action)
    assert (observation.accepted, observation.reward, observation.end) == (False, -1.0, None)
    assert observation.text.endswith(f"Formula: {BLANK}")


def arithmetic(node: ast.AST) -> int:
    """What Python makes of a parsed formula of +, *, numbers and signs."""
    match node:
        case ast.Expression(body=body):
            return arithmetic(body)
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return arithmetic(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return arithmetic(left) + arithmetic(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return arithmetic(left) * arithmetic(right)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return arithmetic(left) ** arithmetic(right)
    raise AssertionError(ast.dump(node))


@given(st.integers(0, 300), st.lists(st.tuples(st.integers(0, 5), st.sampled_from(ACTIONS)), max_size=3))
def test_a_formula_wins_where_python_makes_twelve_of_it(index: int, slips: list[tuple[int, str]]) -> None:
    """Gym Cards evaluates the written text; here it is read, and the verdict is the same."""
    engine = world().engine()
    engine.start(world().tasks("train")[index])
    actions = engine.plan()
    for place, sign in slips:
        actions.insert(place, sign)
    written: list[str] = []
    for action in actions:
        observation = engine.step(action)
        if observation.end:
            break
        written.append(action if observation.accepted else " ")
    try:
        made = arithmetic(ast.parse("".join(written).strip(), mode="eval"))
    except SyntaxError:
        made = None
    is_handed_in = action == "=" and len(written) <= 5
    both_used = not unused(engine._deal, tuple(written))
    assert (observation.end == "success") == (is_handed_in and made == TARGET and both_used)


def test_every_deal_can_be_won_and_belongs_to_one_split() -> None:
    made = world()
    engine = made.engine()
    deals = {}
    for split in ("train", "valid", "test"):
        tasks = made.tasks(split)[:100]
        deals[split] = {deal_of(0, split, index) for index in range(100)}
        for task in tasks:
            engine.start(task)
            observations = [engine.step(action) for action in engine.plan()]
            assert [observation.end for observation in observations] == [None, None, None, "success"]
    assert not deals["train"] & deals["test"]
    assert not deals["valid"] & (deals["train"] | deals["test"])
    assert {task.kind for task in made.tasks("test")} == {"sum", "product"}
    assert deal_of(1, "test", 0) != deal_of(0, "test", 0)


def test_about_five_deals_of_six_are_won_by_adding() -> None:
    kinds = [task.kind for task in world().tasks("train")]
    # Four of twelve ranks are factors, and half of these are dealt with their product: 5/6.
    assert 0.78 < kinds.count("sum") / len(kinds) < 0.88


def test_a_snapshot_restores_the_formula_and_what_was_observed() -> None:
    engine = dealt("3", "4")
    rng = random.Random(3)
    kept = [(engine.snapshot(), engine.restore(engine.snapshot()))]
    for _ in range(60):
        snapshot, seen = rng.choice(kept)
        assert engine.restore(snapshot) == seen
        observation = engine.step(rng.choice(ACTIONS))
        if observation.end is None:
            kept.append((engine.snapshot(), observation))


def test_a_spoilt_formula_has_no_plan() -> None:
    engine = dealt("3", "4")
    engine.step("5")
    with pytest.raises(EngineError):
        engine.plan()


def test_the_expert_wins_from_what_it_sees_and_fails_where_it_forgets_products() -> None:
    made = world()
    engine = made.engine()
    ends = {}
    for forget in (0.0, 1.0):
        for seed, task in enumerate(made.tasks("valid")):
            observations = [engine.start(task).observation]
            while observations[-1].end is None:
                advice = made.next(context(task, *observations), seed, EzPointsHabits(forget=forget))
                observations.append(engine.step(advice.action))
            ends.setdefault((forget, task.kind), set()).add(observations[-1].end)
    assert ends == {
        (0.0, "sum"): {"success"},
        (0.0, "product"): {"success"},
        (1.0, "sum"): {"success"},
        (1.0, "product"): {"failure"},
    }


def test_the_expert_overlooks_as_often_as_it_is_told() -> None:
    made = world()
    strays = 0
    for seed, task in enumerate(made.tasks("train")[:200]):
        start = context(task, made.engine().start(task).observation)
        strays += made.next(start, seed, EzPointsHabits(overlook=0.5)).tag == "explore"
    assert 70 <= strays <= 130


def test_cards_and_formula_are_read_from_what_is_shown() -> None:
    engine = dealt("10", "2")
    observation = engine.step("10")
    task = world().tasks("train")[0]
    unreadable = Observation(text="The response held no readable action.", state="")
    for shown in (context(task, observation), context(task, observation, unreadable)):
        assert read(shown, pixels=2) == (engine._deal, ("10",))
        assert world().compact(shown) == "cards 10 2\nformula 10"


def test_solutions_are_all_orders_that_make_twelve() -> None:
    cards = PlayingCard("3", "hearts"), PlayingCard("4", "clubs")
    assert solutions(cards) == [("3", "*", "4", "="), ("4", "*", "3", "=")]
    assert value(("3", "4")) is None


def test_wrong_options_are_refused_by_name() -> None:
    settings = EnvironmentSettings(name="ezpoints", options={"deels": {}})
    refused(lambda: make_world(settings), names="environment.options.deels", remedy="deals")
