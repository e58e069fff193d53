"""The tutor: what the short prompt says, what the expert does with it, and its faults."""

import msgspec
import pytest
from agentcli.environments.protocol import Context, Toolbox, Tutor
from agentcli.environments.registry import make_world
from agentcli.policies.tiny import make_tokenizer
from agentcli.prompts.tagged import read_tagged, write_tagged
from agentcli.records.calls import read_call
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.search_qa.engine import SearchQaEngine
from agentcli.worlds.search_qa.questions import almanac
from agentcli.worlds.search_qa.world import SearchQaHabits, SearchQaWorld
from playing import play

DOCUMENTS = 300
SIZES = {"documents": DOCUMENTS, "sizes": {"train": 200, "valid": 10, "test": 60}}
SETS = {"search": SIZES, "browse": {**SIZES, "actions": "browse", "part": 110, "snippet": 30}}
FAULTLESS = SearchQaHabits(wander=0.0)


@pytest.fixture(scope="module", params=SETS)
def world(request: pytest.FixtureRequest) -> SearchQaWorld:
    made = make_world(EnvironmentSettings(name="search_qa", options=SETS[request.param]))
    assert isinstance(made, SearchQaWorld)
    return made


@pytest.fixture(scope="module")
def engine(world: SearchQaWorld) -> SearchQaEngine:
    return world.engine()


def episode(world: SearchQaWorld, engine: SearchQaEngine, task: Task, seed: int, habits: SearchQaHabits) -> Context:
    """What an agent that follows the expert knows at the end; its last action is the answer."""

    def choose(context: Context) -> str:
        action = world.next(context, seed, habits).action
        return read_tagged(write_tagged("think", "so", action)).actions[1]

    contexts, last = play(engine, task, choose, 40, accepted=True)
    assert last.end is not None, "the expert never answers"
    return contexts[-1]


def share_won(world: SearchQaWorld, engine: SearchQaEngine, habits: SearchQaHabits) -> dict[str, float]:
    """Share of success by kind of question."""
    won: dict[str, list[bool]] = {}
    for seed, task in enumerate(world.tasks("test")):
        episode(world, engine, task, seed, habits)
        won.setdefault(task.kind, []).append(engine.snapshot().end == "success")
    return {kind: sum(ends) / len(ends) for kind, ends in won.items()}


def test_the_world_is_a_tutor_and_a_toolbox(world: SearchQaWorld) -> None:
    assert isinstance(world, Tutor)
    assert isinstance(world, Toolbox)
    assert all("\n" not in line for line in world.tools.values())


@pytest.mark.parametrize("wander", [0.0, 1.0])
def test_without_faults_the_expert_answers_right(world: SearchQaWorld, engine: SearchQaEngine, wander: float) -> None:
    assert min(share_won(world, engine, SearchQaHabits(wander=wander)).values()) > 0.9


def test_every_fault_costs_what_it_should(world: SearchQaWorld, engine: SearchQaEngine) -> None:
    forgetful = share_won(world, engine, SearchQaHabits(wander=0.0, forget=1.0))
    assert forgetful["one hop"] > 0.9
    assert forgetful["two hops"] == 0
    overlooking = share_won(world, engine, SearchQaHabits(wander=0.0, overlook=1.0))
    assert overlooking["one hop"] < 0.85
    assert overlooking["two hops"] < 0.4


def test_the_prompt_holds_what_a_decision_needs_and_nothing_that_was_not_read(
    world: SearchQaWorld, engine: SearchQaEngine
) -> None:
    """The expert decides the same from the prompt alone: the answer stands there when it is given, and not before."""
    for seed, task in enumerate(world.tasks("test")):
        context = episode(world, engine, task, seed, FAULTLESS)
        (answer,) = engine._question.answers
        shown = [world.compact(cut(context, steps)) for steps in range(len(context.actions))]
        assert answer not in shown[0]
        assert answer in shown[-1]
        for steps, text in enumerate(shown):
            named = context.actions[steps].partition("[")[2].removesuffix("]").strip()
            assert named in text or named == "on"


def cut(context: Context, steps: int) -> Context:
    return msgspec.structs.replace(
        context, observations=context.observations[: steps + 1], actions=context.actions[:steps]
    )


def test_a_policy_of_whole_words_can_write_every_action(world: SearchQaWorld, engine: SearchQaEngine) -> None:
    tokenizer = make_tokenizer(["ask of is results page more end need read on guess answer none"], world.vocabulary())
    for seed, task in enumerate(world.tasks("test")[:20]):
        context = episode(world, engine, task, seed, SearchQaHabits(wander=1.0))
        for steps in range(len(context.actions)):
            advice = world.next(cut(context, steps), seed, SearchQaHabits(wander=1.0))
            response = write_tagged(advice.tag, advice.sentence, advice.action)
            tokens = tokenizer(response)["input_ids"] + tokenizer(world.compact(cut(context, steps)))["input_ids"]
            assert tokenizer.unk_token_id not in tokens
            written = tokenizer.decode(tokenizer(response)["input_ids"])
            assert read_call(read_tagged(written).actions[1]) == read_call(advice.action)


def test_a_policy_can_write_a_name_that_it_was_never_taught(world: SearchQaWorld) -> None:
    words = world.vocabulary()
    names = [entity.name for entity in almanac(DOCUMENTS, 0)]
    assert not set(names) & set(words)
    assert {word for name in names for word in name.split()} <= set(words)


def test_the_prompt_says_what_the_results_are_of(world: SearchQaWorld, engine: SearchQaEngine) -> None:
    context = episode(world, engine, world.tasks("test")[0], 0, FAULTLESS)
    query = context.actions[0].partition("[")[2].removesuffix("]").strip()
    assert f"results of {query} : {query}" in world.compact(cut(context, 1))
    assert "results of" not in world.compact(cut(context, 0))


def test_a_question_of_another_hand_is_searched_for_and_guessed(world: SearchQaWorld) -> None:
    task = world.tasks("test")[0]
    context = Context(task=task, instruction="Who wrote [it]?", observations=("nothing yet",))
    assert world.next(context, 1, FAULTLESS).action == "search [ Who wrote (it)? ]"
    assert "Who wrote" in world.compact(context)
    after = msgspec.structs.replace(
        context, observations=("", "[a-1] The Book: It was Ann."), actions=("search[Who wrote (it)?]",)
    )
    assert world.next(after, 1, FAULTLESS).action == "answer [ The Book ]"
