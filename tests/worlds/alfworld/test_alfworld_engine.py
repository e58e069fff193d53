"""The two ALFWorld engines: the same words and keys from both, exact snapshots, keys that mean one future."""

import gc
import json
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentcli.environments.protocol import Forkable, Observation, Start
from agentcli.records.types import Task
from agentcli.worlds.alfworld import engine as engine_module
from agentcli.worlds.alfworld import statekey
from agentcli.worlds.alfworld.engine import AlfworldEngine, FastEngine, StockEngine
from agentcli.worlds.alfworld.fast import game as fast_game
from agentcli.worlds.alfworld.fast.game import close_idle
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401
from refusal import refusal, refused

NONSENSE = ("", "help", " look ", "dance", "go to moon 1", "take everything", "open fridge 99")
Moment = tuple[Observation, tuple[statekey.Fact, ...]]


def locate(task: Task) -> Path:
    return Path(task.id)


def file_task(path: Path) -> Task:
    """A task whose id is its file."""
    return Task(id=str(path), world="alfworld", split="train", kind="any")


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """One small game of every task type."""
    world = small_world()
    return [world.locate(task) for task in some_of_each_kind(world, 1)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("translations")


@pytest.fixture
def fast(cache: Path) -> Iterator[AlfworldEngine]:
    engine = FastEngine(locate, cache)
    yield engine
    engine.close()


def crowded_copy(path: Path, folder: Path) -> Path:
    """The same game with two tables pushed together: two open receptacles at one location, two objects on the first."""
    game = json.loads(path.read_text())
    problem = game["pddl_problem"]
    openable = set(re.findall(r"\(openable (\S+)\)", problem))
    spots = [
        found for found in re.findall(r"\(receptacleAtLocation (\S+) (\S+)\)", problem) if found[0] not in openable
    ]
    laid = re.findall(r"\(inReceptacle (\S+) (\S+)\)", problem)
    spots.sort(key=lambda spot: -sum(where == spot[0] for _, where in laid))
    (_, kept), (_, gone) = spots[:2]
    problem = re.sub(rf"\n\s*{re.escape(gone)} - location", "", problem)
    game["pddl_problem"] = problem.replace(f" {gone})", f" {kept})")
    copy = folder / "game.tw-pddl"
    copy.write_text(json.dumps(game))
    return copy


def walk(engine: AlfworldEngine, path: Path, actions: list[str]) -> list[Moment]:
    """All an engine says over one episode."""
    moments = [(engine.start(file_task(path)).observation, engine.facts())]
    return moments + [(engine.step(action), engine.facts()) for action in actions]


def draw(engine: AlfworldEngine, path: Path, steps: int, seed: int, nonsense: float = 0.0) -> list[str]:
    """A random episode's actions."""
    rng = random.Random(seed)
    observation = engine.start(file_task(path)).observation
    actions = []
    for _ in range(steps):
        actions.append(rng.choice(NONSENSE if rng.random() < nonsense else observation.actions))
        observation = engine.step(actions[-1])
    return actions


def expert(engine: AlfworldEngine, path: Path) -> list[str]:
    engine.start(file_task(path))
    return engine.plan()


def test_both_engines_say_the_same_in_every_kind_of_play(
    files: list[Path], fast: AlfworldEngine, tmp_path: Path
) -> None:
    """Text, ordered commands, facts, keys, reward, done and won: expert, random and nonsense, two tables at one place.
    The fast engine plays in states that are new, then in states it knows, then in a game loaded again."""
    stock = StockEngine(locate)
    scripts = [(files[3], [*expert(fast, files[3]), "look"]), (crowded_copy(files[0], tmp_path), [])]
    won = 0
    for path, script in scripts:
        actions = [*script, " look ", *draw(fast, path, 12, 5, nonsense=0.2)]
        theirs = walk(stock, path, actions)
        for _ in range(2):
            fast.close()
            close_idle()
            assert walk(fast, path, actions) == theirs
            assert walk(fast, path, actions) == theirs
        won += any(observation.end == "success" for observation, _ in theirs)
    assert won == 1


def test_a_start_names_the_task_and_lists_everything_but_help(files: list[Path], fast: AlfworldEngine) -> None:
    start = fast.start(file_task(files[0]))
    assert start.observation.text.endswith(f"\n\nYour task is to: {start.instruction}")
    assert start.instruction == fast.instruction != ""
    assert {"look", "inventory"} < set(start.observation.actions)
    assert "help" not in start.observation.actions
    assert fast.step("help").text.startswith("Available commands:")
    assert list(start.observation.actions) == sorted(start.observation.actions)


def test_nonsense_changes_nothing_and_is_not_accepted(files: list[Path], fast: AlfworldEngine) -> None:
    start = fast.start(file_task(files[0]))
    facts = fast.facts()
    answer = fast.step("go to moon 1")
    assert (answer.text, answer.accepted, answer.reward) == ("Nothing happens.", False, 0.0)
    assert fast.facts() == facts
    assert answer.actions == start.observation.actions
    assert fast.step("look").accepted


def test_the_expert_wins_from_the_start_and_from_anywhere(files: list[Path], fast: AlfworldEngine) -> None:
    for path in files:
        draw(fast, path, 12, 3)
        observations = [fast.step(action) for action in fast.plan()]
        assert (observations[-1].reward, observations[-1].end) == (1.0, "success")
        assert not any(observation.end for observation in observations[:-1])


def test_snapshots_are_exact_while_engines_take_turns(files: list[Path], cache: Path) -> None:
    """Eight engines over four games (each twice), stepped in turn, restored at random: as if each played alone."""
    paths = [*files[:4], *files[:4]]
    alone = FastEngine(locate, cache)
    scripts = [draw(alone, path, 14, seed, nonsense=0.1) for seed, path in enumerate(paths)]
    expected = [walk(alone, path, script) for path, script in zip(paths, scripts, strict=True)]
    alone.close()
    close_idle()
    engines = [FastEngine(locate, cache) for _ in paths]
    seen = [
        [(engine.start(file_task(path)).observation, engine.facts())]
        for engine, path in zip(engines, paths, strict=True)
    ]
    kept = [[engine.snapshot()] for engine in engines]
    rng = random.Random(7)
    for position in range(14):
        for which, engine in enumerate(engines):
            seen[which].append((engine.step(scripts[which][position]), engine.facts()))
            kept[which].append(engine.snapshot())
    assert seen == expected
    assert len(fast_game._games) == 4
    for _ in range(60):
        which, position = rng.randrange(8), rng.randrange(14)
        engines[which].restore(kept[which][position])
        assert engines[which].facts() == expected[which][position][1]
        again = engines[which].step(scripts[which][position]), engines[which].facts()
        assert again == expected[which][position + 1]
    for engine in engines:
        engine.close()


def test_a_snapshot_of_another_game_is_refused(files: list[Path], fast: AlfworldEngine) -> None:
    fast.start(file_task(files[0]))
    snapshot = fast.snapshot()
    fast.start(file_task(files[1]))
    with refusal(4):
        fast.restore(snapshot)


def test_forgotten_states_are_found_again(files: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files[3]
    engine = FastEngine(locate, cache)
    script = draw(engine, path, 30, 1)
    expected = walk(engine, path, script)
    engine.close()
    close_idle()
    monkeypatch.setattr(fast_game, "MOST_STATES", 4)
    assert walk(engine, path, script) == expected
    engine.start(file_task(path))
    snapshots = [(engine.snapshot(), engine.step(action))[0] for action in script]
    engine.restore(snapshots[5])
    assert engine.step(script[5]) == expected[6][0]
    snapshots.clear()
    gc.collect()
    alive = [thing for thing in gc.get_objects() if isinstance(thing, fast_game.GameState)]
    assert len(alive) <= 4 + 2  # the last few, the first and the current one
    engine.close()


def test_the_disk_cache_changes_nothing_and_heals(files: list[Path], tmp_path: Path) -> None:
    path = files[2]
    first = FastEngine(locate, tmp_path)
    script = draw(first, path, 10, 2)
    first.close()

    def moments(folder: Path | None) -> list[Moment]:
        close_idle()
        engine = FastEngine(locate, folder)
        seen = walk(engine, path, script)
        engine.close()
        return seen

    expected = moments(None)
    kept = sorted((tmp_path / "translation").rglob("*.zst"))
    assert len(kept) == 1
    good = kept[0].read_bytes()
    broken = (b"", good[: len(good) // 2], good[:200] + bytes([good[200] ^ 1]) + good[201:], b"not a frame at all")
    for data in (good, *broken):
        kept[0].write_bytes(data)
        assert moments(tmp_path) == expected
        assert kept[0].read_bytes() == good


def test_a_changed_file_is_loaded_anew(files: list[Path], tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    engine = FastEngine(locate, cache)
    instructions = []
    for source in files[:2]:
        path.write_bytes(source.read_bytes())
        instructions.append(engine.start(file_task(path)).instruction)
    assert instructions[0] != instructions[1]
    path.write_text('{"grammar": 3}')
    refused(lambda: engine.start(file_task(path)), 3, names="game.tw-pddl")


def test_wrong_settings_and_missing_files_are_named(tmp_path: Path, files: list[Path]) -> None:
    for made in (FastEngine, StockEngine):
        refused(
            lambda made=made: made(locate).start(file_task(tmp_path / "missing")),
            3,
            names="missing",
        )
    game = json.loads(files[0].read_text())
    game["pddl_problem"] = "(define (problem p)"
    path = tmp_path / "torn.tw-pddl"
    path.write_text(json.dumps(game))
    refused(lambda: FastEngine(locate).start(file_task(path)), 3, names=("torn.tw-pddl", "pddl_problem"))


def test_capitals_are_read_as_the_papers_releases_read_them(files: list[Path]) -> None:
    for made in (FastEngine, StockEngine):
        engine = made(locate)
        engine.start(file_task(files[1]))
        for action in ("Look", "INVENTORY"):
            loud = engine.step(action)
            assert (loud.accepted, loud.text) == (True, engine.step(action.lower()).text)


def test_a_library_without_snapshots_is_refused_and_stock_has_none(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module.library, "has_snapshots", lambda: False)
    refused(lambda: FastEngine(locate), 4, names="fast_downward_textworld==20.6.4")
    engine = StockEngine(locate)
    engine.start(file_task(files[1]))
    assert not isinstance(engine, Forkable)


def test_playing_prints_nothing_and_leaves_the_process_alone(
    files: list[Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["a program", "with arguments"])
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    for made in (FastEngine, StockEngine):
        close_idle()
        engine = made(locate)
        engine.start(file_task(files[0]))
        engine.step("look")
        engine.close()
    assert capfd.readouterr() == ("", "")
    assert sys.argv == ["a program", "with arguments"]
    assert gc.isenabled()
    assert "ALFWORLD_DATA" not in os.environ


def opened(start: Start, count: int) -> list[str]:
    """Names of receptacles that can be opened."""
    names = [action.removeprefix("go to ") for action in start.observation.actions if action.startswith("go to ")]
    return [name for name in names if name.startswith(("cabinet", "drawer"))][:count]


def visit(engine: AlfworldEngine, path: Path, *actions: str) -> Observation:
    engine.start(file_task(path))
    observations = [engine.step(action) for action in actions]
    assert all(observation.text != "Nothing happens." for observation in observations)
    return observations[-1]


def test_equal_states_share_a_key_whatever_the_order(files: list[Path], fast: AlfworldEngine) -> None:
    path = files[3]
    first, second = opened(fast.start(file_task(path)), 2)
    one = [f"go to {first}", f"open {first}", f"go to {second}", f"open {second}", "go to microwave 1"]
    other = [
        f"go to {second}",
        f"open {second}",
        "help",
        f"go to {first}",
        "look",
        f"open {first}",
        "go to microwave 1",
    ]
    reached = visit(fast, path, *one)
    assert visit(fast, path, *other).state == reached.state
    assert visit(fast, path, *one[2:]).text == reached.text
    assert visit(fast, path, *one[2:]).state != reached.state
    assert fast.step("inventory").text == "You are not carrying anything."
    assert fast.step("go to microwave 1").state != visit(fast, path, *one, "look").state


def test_putting_a_thing_back_gives_the_old_key(files: list[Path], fast: AlfworldEngine) -> None:
    path = files[1]
    actions = expert(fast, path)
    take = next(action for action in actions if action.startswith("take "))
    way = actions[: actions.index(take)]
    thing, place = take.removeprefix("take ").split(" from ")
    before = visit(fast, path, *way, "look")
    held = visit(fast, path, *way, take, "look")
    back = visit(fast, path, *way, take, f"move {thing} to {place}", "look")
    assert back.state == before.state != held.state
    assert held.text == before.text
    assert f"[inventory] {thing}" in held.state
    assert "[inventory] nothing" in before.state


def test_keys_spell_out_what_was_done_to_things(files: list[Path], fast: AlfworldEngine) -> None:
    for path, word in ((files[2], "cleaned"), (files[3], "heated"), (files[4], "cooled"), (files[1], "toggled")):
        keys = [fast.step(action).state for action in expert(fast, path)]
        assert re.search(rf"\[properties\] (.*, )?{word} \w+ \d", keys[-1])
        assert word not in keys[0]


def test_equal_keys_mean_an_equal_future(files: list[Path], fast: AlfworldEngine, tmp_path: Path) -> None:
    """States with one key, reached in different ways, answer every admissible action alike, key included."""
    met = 0
    for path in (crowded_copy(files[0], tmp_path), files[2]):
        fast.start(file_task(path))
        root = fast.snapshot()
        by_key: dict[str, dict[tuple[statekey.Fact, ...], object]] = {}
        rng = random.Random(0)
        for _ in range(40):
            fast.restore(root)
            observation = fast.step("look")
            for _ in range(12):
                busy = [
                    action for action in observation.actions if action.startswith(("take", "move", "open", "close"))
                ]
                observation = fast.step(rng.choice(busy or observation.actions))
                by_key.setdefault(observation.state, {})[fast.facts()] = (fast.snapshot(), observation.actions)
        for ways in by_key.values():
            futures = set()
            for snapshot, admissible in ways.values():
                answers = []
                for action in admissible:
                    fast.restore(snapshot)
                    answers.append(fast.step(action))
                futures.add(tuple((answer.text, answer.state, answer.actions, answer.end) for answer in answers))
            assert len(futures) == 1
            met += len(ways) > 1
    assert met >= 5


def test_what_lies_loose_between_two_tables_is_in_the_key(
    files: list[Path], fast: AlfworldEngine, tmp_path: Path
) -> None:
    """The one fact of the past that a text can show: an object moved to the other table of the same place is listed."""
    path = crowded_copy(files[0], tmp_path)
    fast.start(file_task(path))
    facts = fast.facts()
    shared = statekey.crowded(facts)
    assert len(shared) == 2
    thing, place = next((fact[1], fact[2]) for fact in facts if fact[0] == "inreceptacle" and fact[2] in shared)
    (other,) = shared - {place}
    fast.step(f"go to {place}")
    fast.step(f"take {thing} from {place}")
    moved = fast.step(f"move {thing} to {other}")
    if moved.accepted:
        assert f"a {thing}" in fast.step("look").text
    back = visit(fast, path, f"go to {place}", f"take {thing} from {place}", f"move {thing} to {place}", "look")
    assert back.state == visit(fast, path, f"go to {place}", "look").state


def test_a_key_refuses_a_domain_that_it_cannot_cover() -> None:
    world = statekey.Physics(asked=("ison",), changed=("ison",), conditional={"ison": ("ison",)})
    with refusal(4, "ison"):
        statekey.relevant(world, [])
    assert statekey.relevant(statekey.Physics((), ("ison",), {"ison": ("ison",)}), []) == frozenset()
