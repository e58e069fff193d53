"""The tutor's short prompt and its expert, and the papers' prompt, on the real simulator."""

import msgspec
import pytest
from agentcli.environments.protocol import Context
from agentcli.prompts.protocol import Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import PromptSettings
from agentcli.records.types import Task
from agentcli.worlds.scienceworld.engine import FORMS, MAP, ScienceWorldEngine
from agentcli.worlds.scienceworld.world import ScienceWorldHabits, ScienceWorldWorld
from playing import opened, play
from refusal import refused

KINDS = ("find-animal", "find-living-thing", "find-non-living-thing")
SOUND = ScienceWorldHabits(wander=0.0)


def task_of(kind: str, variation: int) -> Task:
    return Task(id=f"easy/{kind}/{variation}", world="scienceworld", split="train", kind=kind)


def played(
    world: ScienceWorldWorld, engine: ScienceWorldEngine, kind: str, variation: int, habits: ScienceWorldHabits
) -> tuple[list[Context], str | None]:
    """What the expert knew at each of its steps, and how the episode ended."""
    contexts, last = play(engine, task_of(kind, variation), lambda context: world.next(context, 5, habits).action, 13)
    return contexts, last.end


@pytest.mark.parametrize("kind", KINDS)
def test_the_expert_without_faults_wins(world: ScienceWorldWorld, engine: ScienceWorldEngine, kind: str) -> None:
    words = set(" ".join(world.vocabulary()).split())
    for variation in (3, 160, 240):
        contexts, end = played(world, engine, kind, variation, SOUND)
        assert end == "success", contexts[-1].actions
        for context in contexts:
            prompt = world.compact(context)
            assert len(prompt.split()) < 90
            places = [
                line.partition(" ")[2] for line in prompt.splitlines() if line.startswith(("at ", "see ", "ways "))
            ]
            named = set(" ".join(places).replace(",", "").split()) - {"nothing"}
            assert named <= words


def test_an_expert_that_forgets_never_names_the_thing(world: ScienceWorldWorld, engine: ScienceWorldEngine) -> None:
    contexts, end = played(world, engine, "find-animal", 3, ScienceWorldHabits(forget=1.0, wander=0.0))
    assert end is None
    assert not any("focus" in action for action in contexts[-1].actions)


def test_a_careless_expert_takes_what_it_sees_first(world: ScienceWorldWorld, engine: ScienceWorldEngine) -> None:
    ends = [played(world, engine, "find-animal", number, ScienceWorldHabits(overlook=1.0))[1] for number in (3, 4)]
    assert "failure" in ends


def test_other_tasks_have_no_tutor(world: ScienceWorldWorld, engine: ScienceWorldEngine) -> None:
    context = opened(engine, task_of("boil", 0))
    refused(lambda: world.next(context, 0, SOUND), code=3, remedy="--where kind=find-animal")


def test_what_other_copies_saw_is_not_the_agents_past(world: ScienceWorldWorld, engine: ScienceWorldEngine) -> None:
    context = opened(engine, task_of("find-animal", 3))
    pooled = msgspec.structs.replace(context, observations=("You move to the foundry.", *context.observations))
    assert world.next(pooled, 5, SOUND) == world.next(context, 5, SOUND)
    assert world.compact(pooled) == world.compact(context)


def test_the_map_is_the_house() -> None:
    assert len(MAP) == 10
    for room, ways in MAP.items():
        assert all(room in MAP[other] for other in ways)


@pytest.mark.parametrize("style", ["full", "react"])
def test_the_papers_prompt_lists_templates_and_things_in_sight(
    world: ScienceWorldWorld, engine: ScienceWorldEngine, style: str
) -> None:
    context = opened(engine, task_of("find-plant", 0))
    text = make_dialect(PromptSettings(style=style), world, False).ask(Moment(copies=(context,))).text
    assert len(FORMS) == 25
    assert all(f"- {form}: " in text for form in FORMS)
    assert "in sight: picture, orange" in text
    assert "focus on picture" not in text


def test_copies_share_the_templates(world: ScienceWorldWorld, engine: ScienceWorldEngine) -> None:
    context = opened(engine, task_of("find-plant", 0))
    moment = Moment(copies=(context, context), numbered=True)
    text = make_dialect(PromptSettings(style="full"), world, True).ask(moment).text
    assert text.count("- open OBJ: ") == 1
    assert "in sight: picture, orange" in text
