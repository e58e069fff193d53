"""search_qa as an agent meets it: both sets of actions, what is refused, states, forks, and the expert."""

import pytest
from agentcli.environments.protocol import Forkable, Solvable
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.search_qa.engine import SearchQaEngine
from agentcli.worlds.search_qa.world import SearchQaWorld
from refusal import refused

SMALL = {"documents": 200, "sizes": {"train": 50, "valid": 10, "test": 20}}


def world(**options: object) -> SearchQaWorld:
    made = make_world(EnvironmentSettings(name="search_qa", options={**SMALL, **options}))
    assert isinstance(made, SearchQaWorld)
    return made


def opened(**options: object) -> SearchQaEngine:
    """An engine at the beginning of a question of two hops."""
    made = world(**options)
    engine = made.engine()
    engine.start(next(task for task in made.tasks("test") if task.kind == "two hops"))
    return engine


BROWSE = {"actions": "browse", "part": 100, "snippet": 30}


@pytest.mark.parametrize("options", [{}, BROWSE], ids=["search", "browse"])
def test_the_expert_shows_the_evidence_and_wins_from_every_state(options: dict[str, object]) -> None:
    made = world(**options)
    engine = made.engine()
    assert isinstance(engine, Forkable)
    assert isinstance(engine, Solvable)
    for task in made.tasks("test"):
        engine.start(task)
        texts = []
        while actions := engine.plan():
            observation = engine.step(actions[0])
            texts.append(observation.text)
            assert observation.accepted
            assert not observation.looked
            if observation.end:
                break
        assert (observation.end, observation.reward) == ("success", 1.0)
        # The answer was read before it was given.
        assert engine._question.answers[0] in texts[-2]
        assert actions == [f"answer[{engine._question.answers[0]}]"]


def test_search_shows_whole_documents_and_browse_their_beginnings() -> None:
    for options, whole in (({}, True), (BROWSE, False)):
        engine = opened(**options)
        title = engine._question.evidence[0]
        lines = engine.step(f"search[{title}]").text.splitlines()
        assert len(lines) == 3
        assert f"] {title}: {title} is a" in lines[0]
        assert lines[0].endswith("...") is not whole


def test_a_document_is_read_part_by_part() -> None:
    engine = opened(**BROWSE)
    title = engine._question.evidence[0]
    assert not engine.step("read[nothing]").accepted
    assert not engine.step(f"access[{title}]").accepted, "a title counts once it was shown"
    engine.step(f"search[{title}]")
    first = engine.step(f"access[{title.upper()}]")
    number = first.text.partition("]")[0].removeprefix("[")
    assert engine.step(f"access[{number}]").text == first.text
    texts = [first.text]
    while texts[-1].endswith("(more)"):
        texts.append(engine.step("read[nothing yet]").text)
    assert len(texts) > 1
    last = engine.step("read[nothing yet]")
    assert (last.text, last.accepted, last.looked) == ("Noted.", True, True)
    whole = " ".join(text.partition(": ")[2].rpartition(" (")[0] for text in texts)
    assert whole == opened()._source.retriever.access(number).text


def test_the_example_of_003_is_played() -> None:
    """Table 1: a read after each search and each access, here of a document of one part."""
    engine = opened(actions="browse", part=5000)
    one, two = engine._question.evidence
    for action in (f"search[{one}]", "read[a]", f"search[{two}]", "read[b]", f"access[{two}]", "read[c]"):
        observation = engine.step(action)
        assert observation.accepted, action
        assert observation.looked is action.startswith("read")
    assert engine.step(f"answer[{engine._question.answers[0]}]").end == "success"


def test_a_read_after_a_search_turns_the_page_that_is_still_open() -> None:
    engine = opened(**BROWSE)
    one, two = engine._question.evidence
    for action in (f"search[{one}]", f"access[{one}]", f"search[{two}]"):
        engine.step(action)
    assert f"] {one}, part 2 of " in engine.step("read[x]").text


def test_a_long_answer_is_scored_and_judged_alike() -> None:
    made = world()
    task = made.tasks("test")[0]
    exam = made.exam(task, f"answer[{'x' * 1000}]")
    engine = made.engine()
    engine.start(task)
    assert exam is not None
    assert engine.step(f"answer[{'x' * 1000}]").text == f"You answer {exam.answer}."
    assert exam.answer == "x" * 1000


@pytest.mark.parametrize(
    "action",
    ["", "look", "search[]", "cot[]", "access[1]", "click[1]", "answer", "read[x]"],
)
def test_what_is_no_action_of_002_is_not_accepted(action: str) -> None:
    engine = opened()
    state = engine.snapshot()
    observation = engine.step(action)
    assert not observation.accepted
    assert observation.end is None
    assert observation.state == engine.restore(state).state


@pytest.mark.parametrize("action", ["access[no such]", "access[99999999]", "access[-1]", "read[x]"])
def test_what_opens_nothing_is_not_accepted(action: str) -> None:
    assert not opened(**BROWSE).step(action).accepted


def test_states_are_equal_where_the_same_was_shown() -> None:
    engine = opened()
    one, two = engine._question.evidence
    for title in (one, two):
        engine.step(f"search[{title}]")
    both = engine.step("cot[hm]")
    assert both.looked
    again = opened()
    for title in (two, one):
        last = again.step(f"search[{title}]")
    assert (last.state, last.canonical) == (both.state, both.canonical)
    assert again.step(f"search[{one}]").looked, "nothing new was shown"
    assert engine.step("answer[x]").state != both.state


def test_a_snapshot_keeps_the_state_and_what_led_there() -> None:
    engine = opened(**BROWSE)
    copies = []
    for action in engine.plan():
        observation = engine.step(action)
        copies.append((engine.snapshot(), observation))
    for snapshot, observation in copies:
        assert engine.restore(snapshot) == observation


def test_reward_and_success_are_apart() -> None:
    for reward, worth in (("exact", 0.0), ("f1", 2 / 3)):
        engine = opened(reward=reward)
        first, _ = engine._question.answers[0].split()
        half = engine.step(f"answer[{first}]")
        assert (half.end, half.reward) == ("failure", pytest.approx(worth))
        engine = opened(reward=reward)
        whole = engine.step(f"answer[The {engine._question.answers[0].lower()}!]")
        assert (whole.end, whole.reward) == ("success", 1.0)


def test_a_task_of_other_settings_is_refused() -> None:
    task = world(seed=1).tasks("test")[0]
    engine = world().engine()
    refused(lambda: engine.start(task), 3, names=task.id)
    refused(lambda: engine.start(Task(id="x", world="search_qa", split="test", kind="")), 3, names="x")


@pytest.mark.parametrize(
    ("options", "names", "remedy"),
    [
        ({"actions": "brows"}, "environment.options.actions", "browse"),
        ({"reward": "em"}, "environment.options.reward", "exact"),
        ({"documents": 19}, "environment.options.documents", ""),
        ({"documents": 20_001}, "environment.options.documents", ""),
        ({"hops": []}, "environment.options.hops", ""),
        ({"hops": [3]}, "environment.options.hops", ""),
        ({"results": 0}, "environment.options.results", ""),
        ({"sizes": {"tset": 5}}, "environment.options.sizes.tset", "test"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], names: str, remedy: str) -> None:
    settings = EnvironmentSettings(name="search_qa", options=options)
    refused(lambda: make_world(settings), names=names, remedy=remedy)
