"""TextWorld's families: plans win, story and logic agree, forks and state keys are exact, and games are made once."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentcli.environments.protocol import Brief, Context, Forkable, Observation, Solvable, Tutor
from agentcli.environments.registry import make_world
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.textworld import REFUSED, TextWorldEngine, TextWorldOptions, TextWorldWorld, told
from refusal import refused

pytest.importorskip("textworld")

FAMILIES = ["coin_collector", "cooking", "simple", "treasure_hunter"]
SEED = 4


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the games, of which each family makes one."""
    folder = tmp_path_factory.mktemp("textworld")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTCLI_CACHE", str(folder))
        yield folder


def world(family: str, **options: object) -> TextWorldWorld:
    return TextWorldWorld(EnvironmentSettings(name="textworld", options={"family": family, **options}))


def opened(family: str) -> tuple[TextWorldEngine, Observation]:
    engine = world(family).engine()
    return engine, engine.start(task(family)).observation


def task(family: str, seed: int = SEED) -> Task:
    return Task(id=f"train/{seed}", world="textworld", split="train", kind=family)


def test_it_has_a_short_prompt_and_plans_but_no_searching_expert() -> None:
    made = make_world(EnvironmentSettings(name="textworld"))
    assert isinstance(made, Brief)
    assert not isinstance(made, Tutor)
    assert isinstance(made.engine(), Forkable)
    assert isinstance(made.engine(), Solvable)


def test_splits_share_no_seed_and_listing_them_makes_no_game(cache: Path) -> None:
    made = world("simple", settings={"goal": "none"})
    ids = [one.id for split in made.card.splits for one in made.tasks(split)]
    assert len(ids) == len(set(ids)) == 270
    assert not (cache / "textworld" / TextWorldOptions(family="simple", settings={"goal": "none"}).digest()).exists()
    counts = [len(list(world("simple", seeds={"train": 7}).tasks(split))) for split in made.card.splits]
    assert sorted(counts) == [7, 20, 50], "one named size leaves the others as they are"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_plan_wins_from_the_start_and_from_elsewhere(family: str) -> None:
    engine, seen = opened(family)
    for command in [*engine.plan()]:
        assert command in seen.actions
        seen = engine.step(command)
    assert (seen.end, seen.actions) == ("success", ())
    seen = engine.start(task(family)).observation
    engine.step(next(action for action in seen.actions if action.startswith(("go", "open"))))
    for command in engine.plan():
        seen = engine.step(command)
    assert seen.end == "success"


@pytest.mark.parametrize("family", FAMILIES)
def test_it_says_what_textworld_itself_says(family: str) -> None:
    """The library's own environment: text, score, possible commands."""
    import textworld

    engine, seen = opened(family)
    infos = textworld.EnvInfos(admissible_commands=True, won=True)
    theirs = textworld.start(str(engine._opened), infos)
    state = theirs.reset()
    score = 0.0
    rng = random.Random(0)
    for _ in range(15):
        assert list(seen.actions) == state.admissible_commands
        command = rng.choice(seen.actions)
        seen = engine.step(command)
        state, _, _ = theirs.step(command)
        score += seen.reward
        assert (seen.text, score) == (told(state.feedback), state.score)
        assert (seen.end == "success") == state.won
        if seen.end:
            break
    theirs.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_forks_are_exact_and_equal_keys_have_equal_futures(family: str) -> None:
    engine, _ = opened(family)
    futures: dict[tuple[str, str], Observation] = {}
    met = 0
    for seed in range(5):
        seen = engine.start(task(family)).observation
        rng = random.Random(seed)
        while seen.end is None and len(futures) < 60 * (seed + 1):
            action = rng.choice(seen.actions)
            snapshot = engine.snapshot()
            after = engine.step(action)
            assert engine.restore(snapshot) == seen
            assert engine.step(action) == after
            met += (seen.state, action) in futures
            assert futures.setdefault((seen.state, action), after) == after
            seen = after
    assert met > 10


def test_what_is_not_listed_is_refused_and_changes_nothing() -> None:
    """The story would take `restart` and `save`."""
    engine, first = opened("treasure_hunter")
    for action in ("restart", "save", "dance"):
        seen = engine.step(action)
        assert (seen.text, seen.accepted, seen.state, seen.actions) == (REFUSED, False, first.state, first.actions)
    assert engine.step("look").looked


def test_a_lost_game_has_no_plan() -> None:
    """In treasure hunter a second thing lies about, and taking it loses."""
    engine, seen = opened("treasure_hunter")
    right = engine.plan()[-1]
    rng = random.Random(1)
    while seen.end is None:
        takes = [action for action in seen.actions if action.startswith("take") and action != right]
        ways = [action for action in seen.actions if action.startswith("go")]
        seen = engine.step(takes[0] if takes else rng.choice(ways))
    assert seen.end == "failure"
    with pytest.raises(EngineError, match="no plan"):
        engine.plan()


def test_a_game_is_the_same_in_every_process(cache: Path) -> None:
    """Cooking's come out of sets, whose order differs from process to process."""
    program = (
        "import sys; from pathlib import Path; from agentcli.worlds.textworld import TextWorldOptions, maker;"
        f"maker(TextWorldOptions(family='cooking'), Path(sys.argv[1]))({SEED})"
    )
    games = []
    for number in ("1", "2"):
        folder = cache / f"process-{number}"
        environ = os.environ | {"PYTHONHASHSEED": number}
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True, env=environ)
        games.append((folder / f"{SEED}.z8").read_bytes())
    assert games[0] == games[1]


@pytest.mark.parametrize("level", [400, "deep"])
def test_a_value_that_makes_no_game_is_a_mistake_in_the_settings(level: object) -> None:
    poor = world("coin_collector", settings={"level": level})
    refused(lambda: poor.engine().start(poor.tasks("train")[0]), names=("settings", "coin_collector", str(level)))


def test_an_unknown_setting_of_a_family_is_refused() -> None:
    refused(lambda: world("cooking", settings={"lvel": 3}).engine(), names=("settings", "cooking", "lvel"))
    refused(lambda: make_world(EnvironmentSettings(name="textworld", options={"family": "cook"})), names="cook")


def test_a_task_of_another_family_is_refused() -> None:
    """Its seed would open another game."""
    foreign = task("cooking")
    refused(lambda: world("simple").engine().start(foreign), 3, names=(foreign.id, "environment.options"))


def test_the_short_prompt_has_task_readings_room_and_possible_commands() -> None:
    made = world("cooking")
    recipe = "You open the cookbook.\nIngredients:\npork chop"
    context = Context(
        task=task("cooking"),
        instruction="Cook.",
        observations=("-= Kitchen =-\nA stove.", recipe, "You take the pork chop."),
        actions=("examine cookbook", "take pork chop"),
        admissible=("look", "prepare meal"),
    )
    prompt = made.compact(context)
    assert prompt.splitlines() == [
        *("Cook.", "You open the cookbook.", "Ingredients:", "pork chop", "-= Kitchen =-", "A stove."),
        *("You take the pork chop.", "last examine cookbook, take pork chop", "now prepare meal"),
    ]
