"""TextArena's games for one player: they replay and fork, lent generators stay ours, and what cannot be played is refused."""

import random

import numpy as np
import pytest
from agentcli.environments.protocol import Brief, Context, Forkable, Observation, Solvable, Tutor
from agentcli.environments.registry import make_world
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.textarena import CANDIDATES, TextArenaEngine, TextArenaWorld
from refusal import refused

pytest.importorskip("textarena")

GAMES = [
    *("2048-v0", "Bandit-v0", "Blackjack-v0", "FifteenPuzzle-v0", "FrozenLake-v0-random", "GuessTheNumber-v0"),
    *("LightsOut-v0", "Secretary-v0", "Sokoban-v0", "ThreeCardMonte-v0", "TowerOfHanoi-v0"),
]


def world(*games: str, **options: object) -> TextArenaWorld:
    return TextArenaWorld(EnvironmentSettings(name="textarena", options={"games": list(games), **options}))


def opened(game: str, seed: int = 0, **options: object) -> tuple[TextArenaEngine, Observation]:
    engine = world(game, **options).engine()
    return engine, engine.start(task(game, seed)).observation


def task(game: str, seed: int = 0) -> Task:
    return Task(id=f"train/{seed}", world="textarena", split="train", kind=game)


def walked(engine: TextArenaEngine, seen: Observation, seed: int, most: int = 6) -> list[tuple[str, Observation]]:
    """Actions drawn from those that are shown, with what followed."""
    rng = random.Random(seed)
    past: list[tuple[str, Observation]] = []
    while seen.end is None and seen.actions and len(past) < most:
        action = rng.choice(seen.actions)
        seen = engine.step(action)
        past.append((action, seen))
    return past


def test_its_capabilities_are_those_of_its_games() -> None:
    made = make_world(EnvironmentSettings(name="textarena"))
    assert isinstance(made, Brief)
    assert not isinstance(made, Tutor)
    assert isinstance(made.engine(), Forkable)
    assert isinstance(made.engine(), Solvable)
    assert not isinstance(world("FrozenLake-v0", "2048-v0").engine(), Solvable)


def test_the_games_here_are_those_whose_actions_are_known() -> None:
    assert {game.partition("-v")[0] for game in GAMES} == set(CANDIDATES)


@pytest.mark.parametrize("game", GAMES)
def test_a_game_depends_on_its_seed_and_actions_alone(game: str) -> None:
    engine, first = opened(game, 3)
    other, _ = opened(game, 4)
    past = walked(engine, first, 1)
    assert past
    engine.start(task(game, 3))
    for action, seen in past:
        # The other game draws from the same global generators in between.
        walked(other, other.start(task(game, 4)).observation, 2, most=1)
        assert engine.step(action) == seen


@pytest.mark.parametrize("game", GAMES)
def test_a_fork_goes_on_as_the_original_did(game: str) -> None:
    engine, first = opened(game, 5)
    snapshot = engine.snapshot()
    past = walked(engine, first, 3)
    for _ in range(2):
        assert engine.restore(snapshot) == first
        assert [engine.step(action) for action, _ in past] == [seen for _, seen in past]


def test_our_own_generators_are_left_alone() -> None:
    random.seed(7)
    np.random.seed(7)
    before = random.getstate(), np.random.get_state()[1].tolist()
    engine, first = opened("2048-v0")
    walked(engine, first, 0)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize("game", ["FrozenLake-v0", "FrozenLake-v0-hardcore", "TowerOfHanoi-v0"])
def test_a_plan_wins_in_the_fewest_steps(game: str) -> None:
    engine, first = opened(game, 11)
    plan = engine.plan()
    assert set(plan[:1]) <= set(first.actions)
    seen = [engine.step(action) for action in plan]
    assert [one.end for one in seen] == [None] * (len(plan) - 1) + ["success"]
    assert game != "TowerOfHanoi-v0" or len(plan) == 2**3 - 1


def test_a_lost_game_has_no_plan() -> None:
    engine, seen = opened("FrozenLake-v0", 11)
    while seen.end is None:
        seen = engine.step("nowhere")
    with pytest.raises(EngineError, match="no plan"):
        engine.plan()


def test_only_actions_that_the_game_takes_are_shown() -> None:
    """The corner where FrozenLake begins has two sides."""
    engine, first = opened("FrozenLake-v0")
    assert set(first.actions) == {"down", "right"}
    assert "hit a wall" in engine.step("up").text
    guessing, _ = opened("GuessTheNumber-v0", 1)
    seen = guessing.step("7")
    assert seen.end or "7" not in seen.actions


def test_success_is_a_solved_game_and_is_told_by_game() -> None:
    tasks = world("FrozenLake-v0", "TowerOfHanoi-v0", seeds={"train": 2}).tasks("train")
    assert [one.kind for one in tasks] == ["FrozenLake-v0", "TowerOfHanoi-v0"] * 2
    assert len({one.id for one in tasks}) == 4
    engine, first = opened("Blackjack-v0")
    last = walked(engine, first, 0, most=60)[-1][1]
    assert (last.end == "success") == (last.reward > 0.999)


def test_actions_may_be_named_for_another_game() -> None:
    _, first = opened("Mastermind-v0", actions=["1 2 3 4", "4 3 2 1"])
    assert first.actions == ("1 2 3 4", "4 3 2 1")


def test_the_short_prompt_is_the_board_or_what_was_said() -> None:
    made = world("FrozenLake-v0")
    _, first = opened("FrozenLake-v0")
    board = made.compact(Context(task=task("x"), instruction="", observations=(first.text,)))
    assert "---" not in board
    assert sum(line.count("|") == 5 for line in board.splitlines()) == 4
    said = ("The game begins.", "The target number is lower.")
    context = Context(task=task("x"), instruction="", observations=said, actions=("9",))
    assert made.compact(context) == "9 > The target number is lower."


@pytest.mark.parametrize(
    ("game", "reason"),
    [
        ("FrozenLak-v0", "FrozenLake-v0"),
        ("TicTacToe-v0", "more players"),
        ("QuantumTicTacToe-v0", "more players"),
        ("TwentyQuestions-v0", "language model"),
        ("UsedCarNegotiation-v0", "FileNotFoundError"),
    ],
)
def test_what_cannot_be_played_here_is_refused(game: str, reason: str) -> None:
    refused(lambda: world(game).engine(), names=("environment.options.games", game, reason))


def test_a_game_whose_word_list_is_not_here_downloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    refused(lambda: world("Hangman-v0").engine(), names=("Hangman-v0", "python -m nltk.downloader words"))
