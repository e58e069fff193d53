"""The generator: official sizes and split, real placements, one id one game, files the stock loader plays."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.alfworld import generator
from agentcli.worlds.alfworld.draw import (
    TOOLS,
    UNSEEN_SCENES,
    choices,
    constants,
    draw,
    fits,
    free_points,
    goals,
    parse_name,
    receptacles,
    room,
    scenes,
    shares,
    training_scenes,
)
from agentcli.worlds.alfworld.options import KINDS, OFFICIAL_GAMES, AlfworldOptions
from agentcli.worlds.alfworld.planner import goal_of_task, parse_instruction
from agentcli.worlds.alfworld.search import entities
from agentcli.worlds.alfworld.world import AlfworldWorld
from alfworld_games import SMALL, game_cache, small_world, some_of_each_kind  # noqa: F401
from refusal import refused

ALL_SCENES = [*range(1, 31), *range(201, 231), *range(301, 331), *range(401, 431)]


def test_default_panels_have_the_official_sizes_and_rooms() -> None:
    world = AlfworldWorld(EnvironmentSettings())
    sizes = {split: len(world.tasks(split)) for split in world.card.splits}
    assert sizes == {
        "train": 3553, "valid_seen": 140, "valid_unseen": 134,
        "L0-train": 3553, "L0": 140, "L1-train": 3553, "L1": 134, "L2-train": 2207, "L2": 38,
    }  # fmt: skip
    for split, per_kind in OFFICIAL_GAMES.items():
        assert Counter(task.kind for task in world.tasks(split)) == dict(zip(KINDS, per_kind, strict=True))
    rooms = {split: {int(task.attributes["scene"]) for task in world.tasks(split)} for split in OFFICIAL_GAMES}
    assert rooms["valid_unseen"] == {10, 219, 308, 424}
    assert rooms["train"] == set(training_scenes())
    assert not (rooms["train"] | rooms["valid_seen"]) & set(UNSEEN_SCENES)
    assert {task.kind for task in world.tasks("L2")} == set(KINDS[4:])
    assert {task.kind for task in world.tasks("L2-train")} == set(KINDS[:4])


def test_listing_is_a_function_of_the_settings_and_mixes_the_kinds() -> None:
    tasks = AlfworldWorld(EnvironmentSettings()).tasks("train")
    assert tasks == AlfworldWorld(EnvironmentSettings(options={"engine": "stock"})).tasks("train")
    assert len({task.id for task in tasks}) == len(tasks)
    assert tasks != AlfworldWorld(EnvironmentSettings(options={"seed": 1})).tasks("train")
    assert {task.kind for task in tasks[:40]} == set(KINDS)


def test_listing_starts_no_engine_and_writes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from agentcli.worlds.alfworld.world import AlfworldWorld\n"
        "from agentcli.records.settings import EnvironmentSettings\n"
        "world = AlfworldWorld(EnvironmentSettings()); world.tasks('L2'); world.vocabulary()\n"
        "print([name for name in ('textworld', 'alfworld', 'numpy', 'torch') if name in sys.modules])"
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": os.getcwd(), "AGENTCLI_CACHE": str(home / "cache")}
    environment.pop("ALFWORLD_DATA", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert list(home.iterdir()) == []


def test_kinds_and_rooms_restrict_what_is_drawn() -> None:
    world = small_world(rooms=["bathroom"], kinds=["pick_and_place_simple", "pick_clean_then_place_in_recep"])
    tasks = world.tasks("train")
    assert len(tasks) == 60
    assert {task.kind for task in tasks} == {"pick_and_place_simple", "pick_clean_then_place_in_recep"}
    assert {task.attributes["room"] for task in tasks} == {"bathroom"}
    assert len({task.attributes["scene"] for task in tasks}) == 3
    assert {task.attributes["scene"] for task in world.tasks("valid_unseen")} == {"424"}
    assert world.tasks("L2") == []
    any_kind = {task.kind for task in small_world(rooms=["bathroom"]).tasks("train")}
    assert any_kind == {"pick_and_place_simple", "pick_clean_then_place_in_recep", "pick_two_obj_and_place"}


def test_fewest_receptacles_first() -> None:
    few = scenes(AlfworldOptions(scenes_per_room=2, rooms=["bedroom"]), "train")
    sizes = {scene: sum(room(scene).types.values()) for scene in training_scenes() if room(scene).kind == "bedroom"}
    assert sorted(sizes[scene] for scene in few) == sorted(sizes.values())[:2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluter": 3}, "did you mean clutter"),
        ({"games": {"L0": 3}}, "games.L0"),
        ({"games": {"train": -1}}, "games.train"),
        ({"kinds": ["pick"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"rooms": ["kitchen", "kitchen"]}, "rooms"),
        ({"distractor_instances": 0}, "distractor_instances"),
        ({"distractor_instances": 51}, "distractor_instances"),
        ({"scenes_per_room": 0}, "scenes_per_room"),
        ({"clutter": "many"}, "clutter"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], words: str) -> None:
    refused(lambda: AlfworldWorld(EnvironmentSettings(options=options)), names=words)


def test_a_kind_that_no_room_allows_is_refused() -> None:
    world = AlfworldWorld(EnvironmentSettings(options={"rooms": ["bathroom"], "kinds": ["look_at_obj_in_light"]}))
    refused(lambda: world.tasks("train"), names="look_at_obj_in_light")


def test_shares_sum_up_and_keep_official_counts() -> None:
    for weights in OFFICIAL_GAMES.values():
        assert shares(sum(weights), list(weights)) == list(weights)
    assert shares(10, [1, 1, 1]) == [4, 3, 3]
    assert shares(0, [5, 3]) == [0, 0]


def test_every_room_has_receptacles_with_distinct_ids_and_free_floor() -> None:
    for scene in ALL_SCENES:
        places = receptacles(scene)
        assert len({place.id for place in places}) == len(places)
        assert Counter(place.type for place in places) == room(scene).types
        assert {place.type for place in places} <= fits().keys()
        assert set(free_points(scene)).isdisjoint(place.point[:2] for place in places)
        assert free_points(scene)
    assert room(10).types["StoveBurner"] == 4


def test_drawn_games_respect_what_fits_where_and_start_unsolved() -> None:
    options = AlfworldOptions()
    for split in OFFICIAL_GAMES:
        for task_id in draw(options, split)[::29]:
            scene = generator.arrange(task_id, options)
            name = scene.name
            assert all(thing.type in fits()[thing.where.type] for thing in scene.things if thing.type != "DeskLamp")
            assert name.receptacle == "DeskLamp" or name.object in fits()[name.receptacle]
            own = [thing for thing in scene.things if thing.type == name.object]
            assert len(own) >= (2 if name.kind == "pick_two_obj_and_place" else 1)
            assert all(thing.where.type != name.receptacle for thing in own)
            assert scene.start[:2] not in {place.point[:2] for place in scene.receptacles}
            assert len({thing.id for thing in scene.things}) == len(scene.things)
            others = Counter(thing.type for thing in scene.things if thing.type not in (name.object, "DeskLamp"))
            assert len(others) <= options.clutter
            assert max(others.values(), default=0) <= options.distractor_instances
            if name.kind in TOOLS:
                tool = TOOLS[name.kind]
                assert tool.receptacle in room(name.scene).types
                assert name.object in constants().VAL_ACTION_OBJECTS[tool.ability]


def test_choices_know_the_room() -> None:
    assert choices(424, "pick_heat_then_place_in_recep") == {}
    assert choices(219, "look_at_obj_in_light") == {}
    assert set(choices(308, "look_at_obj_in_light").values()) == {("DeskLamp",)}
    assert "Fridge" not in choices(10, "pick_cool_then_place_in_recep")["Apple"]


def test_one_id_is_one_game_and_settings_make_another() -> None:
    task_id = draw(AlfworldOptions(), "train")[5]
    texts = generator.files(task_id, AlfworldOptions())
    assert texts == generator.files(task_id, AlfworldOptions(engine="stock"))
    assert texts != generator.files(task_id, AlfworldOptions(seed=1))
    assert AlfworldOptions().digest() != AlfworldOptions(clutter=3).digest()
    assert AlfworldOptions(kinds=list(reversed(KINDS))).digest() == AlfworldOptions().digest()


def test_the_files_of_a_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(tmp_path))
    world = small_world()
    for task in some_of_each_kind(world, 2):
        path = world.locate(task)
        assert path.relative_to(tmp_path).parts[0] == "alfworld"
        assert str(path.parent).endswith(f"json_2.1.1/{task.id}")
        game = json.loads(path.read_text())
        assert set(game) == {"pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"}
        assert game["solvable"] is True
        assert 2 <= len(game["walkthrough"]) <= 11
        assert (path.parent / "initial_state.pddl").read_text() == game["pddl_problem"]
        described = json.loads((path.parent / "traj_data.json").read_text())
        assert described["task_type"] == task.kind
        sentence = described["turk_annotations"]["anns"][0]["task_desc"]
        assert f"Your task is to: {sentence}." in game["grammar"]
        assert parse_instruction(sentence) == goal_of_task(task.id)
        assert world.locate(task) == path
    assert {name.name for name in (path.parents[4] / "logic").iterdir()} == {"alfred.pddl", "alfred.twl2"}
    assert list((path.parents[4] / "partial").iterdir()) == []


def test_a_task_of_other_settings_is_refused() -> None:
    stranger = AlfworldWorld(EnvironmentSettings()).tasks("train")[0]
    refused(lambda: small_world().locate(stranger), 3, names=stranger.id)
    refused(
        lambda: small_world().locate(Task(id="nonsense", world="alfworld", split="train", kind="x")),
        3,
        names="nonsense",
    )


LOCATE = """
import sys
sys.path.insert(0, sys.argv[1])
from alfworld_games import small_world
world = small_world()
for task in world.tasks("train")[:20]:
    print(world.locate(task))
"""


def run_python(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """Another interpreter with this package and these tests' helpers; the tests' own process stays as it is."""
    command = [sys.executable, "-c", code, str(Path(__file__).parents[2] / "support"), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_may_make_the_same_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(tmp_path))
    both = [run_python(LOCATE), run_python(LOCATE)]
    first, second = (process.communicate()[0].splitlines() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert first == second
    assert len(first) == 20
    for task, path in zip(small_world().tasks("train"), first, strict=False):
        assert (
            Path(path).read_text() == generator.files(task.id, msgspec.convert(SMALL, AlfworldOptions))["game.tw-pddl"]
        )


def test_sentences_of_the_goal_library_are_understood() -> None:
    words = {"obj": "mug", "recep": "desk", "toggle": "desk"}
    for kind in KINDS:
        templates = goals()[kind]["templates"]
        assert isinstance(templates, list)
        for template in templates:
            goal = parse_instruction(f"Your task is to: {template.format(**words)}.")
            assert (goal.kind, goal.object, goal.place) == (kind, "mug", "desk")
    refused(lambda: parse_instruction("make me a sandwich"), 3, names="make me a sandwich")


def test_vocabulary_is_closed_over_the_games() -> None:
    options = msgspec.convert(SMALL, AlfworldOptions)
    known = set(entities(options, None))
    seen: set[str] = set()
    for split in OFFICIAL_GAMES:
        for task_id in draw(options, split)[::7]:
            facts = generator.shown(generator.initial_facts(generator.arrange(task_id, options)))
            seen.update(fact[1] for fact in facts if fact[0] in ("receptacletype", "objecttype"))
    assert seen <= known
    assert len(seen) > len(known) / 2
    assert entities(options, None) == sorted(known)


STOCK = """
import json, sys
from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

config = {
    "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6], "domain_randomization": False},
    "dataset": {"eval_ood_data_path": sys.argv[2], "num_eval_games": -1},
    "general": {"training_method": "dqn"},
    "rl": {"training": {"max_nb_steps_per_episode": 50}},
}
config["env"]["expert_type"] = "handcoded"
stock = AlfredTWEnv(config, train_eval="eval_out_of_distribution")
live = stock.init_env(batch_size=1)
texts, infos = live.reset()
with open(infos["extra.gamefile"][0]) as file:
    walkthrough = json.load(file)["walkthrough"]
for action in walkthrough:
    _, _, _, infos = live.step([action])
live.close()
print(json.dumps({"games": stock.game_files, "intro": texts[0], "won": list(infos["won"])}))
"""


def test_the_stock_loader_collects_and_plays_generated_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(tmp_path))
    world = small_world(games={"valid_unseen": 2}, rooms=["bathroom"])
    paths = {str(world.locate(task)) for task in world.tasks("L1")}
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    process = run_python(STOCK, str(generator.cache_root(world.options) / "json_2.1.1" / "valid_unseen"))
    said = json.loads(process.communicate()[0].splitlines()[-1])
    assert set(said["games"]) == paths
    assert "in the middle of a" in said["intro"]
    assert said["won"] == [True]


def test_names_of_games_are_taken_apart() -> None:
    assert parse_name("pick_heat_then_place_in_recep-Apple-None-Fridge-12")[1:] == ("Apple", "None", "Fridge", 12)
    with pytest.raises(ValueError, match="unpack"):
        parse_name("nonsense")
