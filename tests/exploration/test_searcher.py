"""The searching expert in several copies: different places, then the finder alone; in a hall of boxes and in real games."""

import asyncio
from typing import Any

import pytest
from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.policies.demonstrator import Demonstrator
from agentcli.policies.model_free import Uniform
from agentcli.policies.protocol import Request
from agentcli.policies.searcher import Searcher, is_refuted
from agentcli.prompts.parallel import Parallel, read_parallel
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.settings import DemosSettings, EnvironmentSettings, PolicySettings, Settings
from agentcli.records.trees import paths, validate_tree
from agentcli.records.types import Outcome, Task, Validity
from alfworld_games import SMALL, game_cache  # noqa: F401
from fitting import fitting
from growing import grown
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from refusal import refused
from small_world import SmallHabits, SmallWorld

TASK = Task(id="t", world="boxes", split="train", kind="k")
BOXES = tuple(f"open box {number}" for number in range(1, 7))


class Boxes(SmallWorld):
    """Its expert opens the first box that it may open and whose content it does not know; it takes the cup when it sees it."""

    def next(self, context: Context, seed: int, habits: SmallHabits) -> Advice:
        if habits.forget:
            return Advice("think", FINISHED, "look")
        if "a cup" in context.observations[-1]:
            return Advice("think", "take cup", "take cup")
        known = " ".join(context.observations)
        closed = [action for action in context.admissible if action.startswith("open") and f"{action}:" not in known]
        return Advice("explore", "find cup", closed[0] if closed else "look")


def opened(*boxes: int, last: str = "nothing") -> Context:
    """A copy in which these boxes were opened."""
    seen = [f"open box {number}: nothing" for number in boxes]
    seen[-1:] = [f"open box {boxes[-1]}: {last}"] if boxes else []
    actions = tuple(f"open box {number}" for number in boxes)
    return Context(
        task=TASK, instruction="", observations=("A hall.", *seen), actions=actions, admissible=(*BOXES, "look")
    )


def request(*copies: Context, ended: tuple[int, ...] = ()) -> Request:
    return Request(
        message=Message(("",)),
        moment=Moment(copies=copies, numbered=True, ended=frozenset(ended)),
        states=tuple(f"state {number}" for number in range(1, len(copies) + 1)),
        form=Parallel(),
        seed=1,
        episode_seed=2,
        temperature=0.0,
        max_tokens=1,
    )


def answer(policy: Any, *copies: Context, ended: tuple[int, ...] = ()) -> dict[int, str]:
    reply = asyncio.run(policy.respond(request(*copies, ended=ended)))
    return dict(read_parallel(reply.text, range(1, 9), 8).actions)


SEARCH = Searcher(Boxes())  # type: ignore[arg-type]


@pytest.mark.parametrize(("boxes", "share"), [(0, 0.25), (4, 0.25), (5, 0.75), (6, 0.75)])
def test_a_share_of_the_searches_is_tagged_by_interval_of_five_steps(boxes: int, share: float) -> None:
    """400 draws: four standard errors are 0.087."""
    known = opened(*range(1, boxes + 1))
    asked = replace(request(known), moment=Moment(copies=(known,)), form=Tagged())
    always = SEARCH.respond_with(asked, SmallHabits()).text
    assert "<explore>" in always
    tags = []
    for seed in range(400):
        text = SEARCH.respond_with(replace(asked, seed=seed), SmallHabits(), [0.25, 0.75]).text
        tags.append("<explore>" in text)
        # Nothing but the tag differs.
        assert text.replace("think", "explore") == always
    assert tags.count(True) / 400 == pytest.approx(share, abs=0.09)


PLACES = st.sampled_from(["fridge 1", "drawer 1", "drawer 11", "shelf 2"])


@given(visits=st.lists(st.tuples(st.sampled_from(["go to", "open", "take cup from", "look at"]), PLACES)), place=PLACES)
def test_a_search_after_a_look_in_vain_is_tagged_and_no_other(visits: list[tuple[str, str]], place: str) -> None:
    """In vain: the last move went to a place or opened it, and the search goes on at another one."""
    actions = tuple(" ".join(visit) for visit in visits)
    context = Context(task=TASK, instruction="", observations=("",) * (len(actions) + 1), actions=actions)
    looked_at = {visits[-1][1]} if visits and visits[-1][0] in ("go to", "open") else set()
    for action in (f"go to {place}", f"open {place}"):
        assert is_refuted(context, action, ("go", "open")) == bool(looked_at - {place})


def test_refuted_tags_in_real_games_follow_a_place_without_what_is_sought() -> None:
    demonstrator = {"kind": "demonstrator"}
    (every,) = grown(alfworld("chain", policy=demonstrator, leaves=1))
    (few,) = grown(alfworld("chain", policy=demonstrator, leaves=1, demos={"explore": "refuted"}))
    tags = 0
    for all_tags, tree in zip(every, few, strict=True):
        assert [step.action for step in all_tags.steps] == [step.action for step in tree.steps]
        for before, step in zip([None, *tree.steps], tree.steps, strict=False):
            tags += step.tag == "explore"
            if step.tag == "explore":
                assert before is not None
                assert all_tags.steps[step.id].tag == "explore"
                sought = step.response.partition("find ")[2].split()[0]
                assert sought not in before.next_observation
    searches = sum(step.tag == "explore" for tree in every for step in tree.steps)
    assert 0 < tags < searches


def test_a_world_without_moves_that_look_somewhere_has_none_in_vain() -> None:
    settings = DemosSettings(explore="refuted")
    refused(lambda: Demonstrator(SEARCH, Boxes(), settings), names=("demos.explore", "small"))  # type: ignore[arg-type]


def test_what_is_no_search_is_never_tagged() -> None:
    found = opened(1, 2, last="a cup")
    asked = replace(request(found), moment=Moment(copies=(found,)), form=Tagged())
    assert "<explore>" not in SEARCH.respond_with(asked, SmallHabits(), [1.0]).text


def test_copies_open_different_boxes_and_none_that_any_has_opened() -> None:
    assert answer(SEARCH, opened(), opened(), opened()) == {1: BOXES[0], 2: BOXES[1], 3: BOXES[2]}
    assert answer(SEARCH, opened(1), opened(2), opened(3)) == {1: BOXES[3], 2: BOXES[4], 3: BOXES[5]}


def test_a_copy_for_which_no_place_is_left_rests() -> None:
    assert answer(SEARCH, opened(1, 2), opened(3, 4), opened(6, 6)) == {1: BOXES[4], 2: "look"}


def test_copies_that_ended_do_not_act() -> None:
    assert answer(SEARCH, opened(), opened(), opened(), ended=(1, 3)) == {2: BOXES[0]}


def test_the_copy_that_found_it_goes_on_alone() -> None:
    assert answer(SEARCH, opened(1), opened(2, last="a cup"), opened(3)) == {2: "take cup"}
    both = answer(SEARCH, opened(1), opened(2, last="a cup"), opened(3, last="a cup"))
    assert both == {2: "take cup"}


def test_who_goes_on_alone_stays_alone_and_knows_what_the_others_saw() -> None:
    """Copy 2 has acted once more than the others and searches again, past boxes 1 and 4 that others have opened."""
    assert answer(SEARCH, opened(1), opened(2, 3), opened(4)) == {2: BOXES[4]}


def test_habits_are_those_of_the_searching_expert() -> None:
    rested = Context(task=TASK, instruction="", observations=("", ""), actions=("look",), admissible=("look",))
    first = SEARCH.respond_with(request(opened(), opened()), SmallHabits(forget=1.0))
    again = SEARCH.respond_with(request(rested, opened()), SmallHabits(forget=1.0))
    assert (first.mask, again.mask) == (None, "finished")
    assert read_parallel(again.text, [1, 2], 2).actions == {1: "look"}


def test_a_uniform_draw_is_made_in_each_copy_with_a_seed_of_its_own() -> None:
    alike = [opened(1) for _ in range(8)]
    actions = answer(Uniform(), *alike, ended=(2,))
    assert list(actions) == [1, 3, 4, 5, 6, 7, 8]
    assert set(actions.values()) <= set(alike[0].admissible)
    assert len(set(actions.values())) > 1


def alfworld(method: str, **settings: Any) -> Settings:
    return Settings(
        environment=EnvironmentSettings(tasks=12, options=SMALL),
        policy=PolicySettings(**settings.pop("policy", {"kind": "search"})),
        demos=DemosSettings(**settings.pop("demos", {})),
        rollout=fitting(**{"method": method, "leaves": 1, **settings}),
    )


def test_it_wins_real_games_in_fewer_steps_than_one_alone() -> None:
    several, alone = grown(alfworld("dpepo"), alfworld("chain"))
    assert {tree.steps[-1].outcome for tree in several} == {Outcome.SUCCESS}
    assert sum(len(tree.steps) for tree in several) < sum(len(tree.steps) for tree in alone)
    places = [[move.action for move in tree.steps[0].moves] for tree in several]
    assert {len(actions) for actions in places} == {4}
    assert all(len(set(actions)) == 4 for actions in places)
    for tree in several:
        assert {step.validity for step in tree.steps} == {Validity.VALID}
        assert all(move.action in move.admissible for step in tree.steps for move in step.moves)
        alone_from = [len(step.moves) for step in tree.steps].index(1)
        assert len({step.moves[0].copy for step in tree.steps[alone_from:]}) == 1


def test_it_demonstrates_with_habits_and_stray_moves_from_which_it_recovers() -> None:
    demonstrator = {"kind": "demonstrator"}
    (forgetful,) = grown(alfworld("dpepo", policy=demonstrator, demos={"forget": 1.0}))
    lost = {tree.task.kind for tree in forgetful if tree.steps[-1].outcome is not Outcome.SUCCESS}
    assert "pick_clean_then_place_in_recep" in lost
    assert "pick_and_place_simple" not in lost
    (straying,) = grown(alfworld("dpepo", policy=demonstrator, demos={"stray": 0.3}))
    strayed = [step for tree in straying for step in tree.steps if step.mask == "stray"]
    assert len(strayed) > 5
    assert all(sum(move.action not in move.admissible for move in step.moves) == 1 for step in strayed)
    assert {tree.steps[-1].outcome for tree in straying} == {Outcome.SUCCESS}


def test_every_method_grows_real_trees() -> None:
    """Uniform draws; the expert in every copy wins at once."""
    growths: dict[str, dict[str, Any]] = {
        "chain": {},
        "spark": {"branch": "fixed:.2"},
        "carl": {"criterion": "random"},
        "treerl": {},
        "treerpo": {},
        "dpepo": {"copies": 2},
    }
    drawn = {"kind": "random"}
    runs = [alfworld(m, policy=drawn, leaves=4, roots=2, **rollout) for m, rollout in growths.items()]
    for run in runs:
        run.environment.tasks, run.environment.max_steps = 3, 8
    for trees in grown(*runs):
        for tree in trees:
            validate_tree(tree)
            assert all(step.error is None for step in tree.steps)
            assert 2 <= len(paths(tree)) <= 4
    (won,) = grown(alfworld("dpepo", policy={"kind": "expert"}, copies=2))
    assert all(tree.steps[-1].outcome is Outcome.SUCCESS for tree in won)
