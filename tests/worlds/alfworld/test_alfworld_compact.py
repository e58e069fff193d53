"""The compact prompt: short, from the agent's own past alone, and enough to act on."""

import re
import statistics

from agentcli.environments.protocol import Context
from agentcli.records.types import Task
from agentcli.worlds.alfworld.search import AlfworldHabits, compact
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401
from playing import play

TASK = Task(
    id="train/look_at_obj_in_light-Book-None-DeskLamp-301/trial_g00000", world="alfworld", split="train", kind="x"
)
INTRO = "You are in the middle of a room. Looking quickly around you, you see a bed 1, a desk 1, and a drawer 1."
WORD = re.compile(r"[a-z]+ \d+|\S+")


def test_a_prompt_by_hand() -> None:
    context = Context(
        task=TASK,
        instruction="look at book under the desklamp.",
        observations=(
            INTRO,
            "You arrive at drawer 1. The drawer 1 is closed.",
            "You arrive at desk 1. On the desk 1, you see a desklamp 1, and a mug 1.",
            "You arrive at bed 1. On the bed 1, you see a book 2, and a pillow 1.",
            "You pick up the book 2 from the bed 1.",
        ),
        actions=("go to drawer 1", "go to desk 1", "go to bed 1", "take book 2 from bed 1"),
        admissible=(
            "examine bed 1", "go to desk 1", "go to drawer 1", "help", "inventory", "look", "move book 2 to bed 1",
            "slice book 2 with knife 1",
        ),
    )  # fmt: skip
    assert compact(context) == (
        "task look at book under the desklamp\n"
        "found desklamp 1 desk 1\n"
        "last bed 1 has book 2 > take book 2 from bed 1\n"
        "now take book 2\n"
        "at bed 1 hold book 2\n"
        "old desk 1\n"
        "shut drawer 1\n"
        "can move book 2 to bed 1"
    )


def test_the_first_prompt_and_a_malformed_step() -> None:
    context = Context(
        task=TASK,
        instruction="look at book under the desklamp.",
        observations=(INTRO,),
        admissible=("go to bed 1", "look"),
    )
    assert compact(context) == ("task look at book under the desklamp\nnow start\nat middle hold nothing\nnew bed 1")
    after = Context(
        task=TASK,
        instruction=context.instruction,
        observations=(INTRO, "Nothing happens."),
        actions=("",),
        admissible=("go to bed 1", "use desklamp 1"),
    )
    assert "last start > nothing\nnow nothing happens" in compact(after)
    assert "can use desklamp 1" in compact(after)


def test_irrelevant_takes_are_left_to_the_observation() -> None:
    context = Context(
        task=TASK,
        instruction="look at book under the desklamp.",
        observations=(INTRO, "You arrive at bed 1. On the bed 1, you see a book 1, and a pillow 1."),
        actions=("go to bed 1",),
        admissible=("go to desk 1", "take book 1 from bed 1", "take pillow 1 from bed 1"),
    )
    prompt = compact(context)
    assert "now bed 1 has book 1 pillow 1" in prompt
    assert prompt.endswith("can take book 1 from bed 1")


def test_prompts_of_real_episodes_are_short_and_name_every_way_to_go() -> None:
    world = small_world(clutter=6, distractor_instances=1)
    engine = world.engine()
    vocabulary = set(world.vocabulary())
    lengths = []

    def choose(context: Context) -> str:
        prompt = world.compact(context)
        assert not re.search(r"\b(?:look|inventory|help|examine|slice)\b", prompt.split("\nnow ", 1)[1])
        words = WORD.findall(prompt)
        lengths.append(len(words))
        assert {word for word in words if re.search(r" \d", word)} <= vocabulary
        for action in context.admissible:
            if action.startswith("go to "):
                assert action[6:] in words
        return world.next(context, 1, AlfworldHabits())[2]

    for task in some_of_each_kind(world, 2):
        assert play(engine, task, choose, limit=60)[1].end == "success"
    engine.close()
    assert statistics.median(lengths) <= 55
    assert max(lengths) <= 90
