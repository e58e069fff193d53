"""From trees to episodes to a summary."""

import pytest
from agentcli.evaluation.episodes import episodes, repetitions
from agentcli.evaluation.statistics import wilson
from agentcli.evaluation.summary import pass_at_k_summary, successes_by_task, summarise
from agentcli.records.types import Episode, Move, Outcome, Validity
from credit_trees import step, tree


def episode(task: str, outcome: Outcome, kind: str = "walk", sample: int = 0, steps: int = 4) -> Episode:
    return Episode(
        task=task,
        kind=kind,
        sample=sample,
        outcome=outcome,
        score=1.0,
        steps=steps,
        moves=steps,
        tokens=10,
        repetitive_steps=1,
        explore_steps=2,
        malformed_steps=0,
        inadmissible_steps=1,
    )


def test_every_path_is_an_episode_with_its_own_counts() -> None:
    steps = [
        step(0, None, tag="explore", token_ids=[1, 2], logprobs=[-1.0, -1.0]),
        step(1, 0, outcome=Outcome.SUCCESS, reward=1.0, tag="think", token_ids=[3], logprobs=[-1.0]),
        step(2, 0, validity=Validity.INADMISSIBLE, state="s0", action="go 0"),
        step(3, 2, outcome=Outcome.TRUNCATED, validity=Validity.MALFORMED, action=None),
    ]
    won, cut = episodes(tree(*steps))
    assert (won.outcome, won.steps, won.tokens, won.explore_steps, won.score) == (Outcome.SUCCESS, 2, 3, 1, 1.0)
    assert (cut.outcome, cut.steps, cut.tokens, cut.sample) == (Outcome.TRUNCATED, 3, 2, 1)
    assert (cut.inadmissible_steps, cut.malformed_steps, cut.repetitive_steps) == (1, 1, 1)


def test_repetition_needs_the_same_state_and_action() -> None:
    walk = [step(0, None, state="a", action="x"), step(1, 0, state="b", action="x"), step(2, 1, state="a", action="x")]
    assert repetitions(walk) == 1


def test_a_malformed_step_repeats_nothing() -> None:
    walk = [step(number, number - 1 if number else None, state="a", action=None) for number in range(3)]
    assert repetitions(walk) == 0


def test_what_had_no_effect_is_repeated_though_the_state_counts_the_time() -> None:
    """The exact state changes with each step; f(s) changes with the third alone, which moved."""
    fields = [
        {"canonical": "hall", "next_canonical": "hall", "validity": Validity.INADMISSIBLE},
        {"canonical": "hall", "next_canonical": "hall", "looked": True},
        {"canonical": "hall", "next_canonical": "room"},
        {"canonical": "room", "next_canonical": "room", "validity": Validity.INADMISSIBLE},
    ]
    rows = [(0, "push"), (0, "push"), (1, "push"), (0, "push"), (2, "go"), (3, "push"), (3, "push")]
    walk = [
        step(number, number - 1 if number else None, action=action, **fields[kind])
        for number, (kind, action) in enumerate(rows)
    ]
    assert [repetitions(walk[: number + 1]) for number in range(7)] == [0, 1, 2, 3, 3, 3, 4]


def moves(*made: tuple[int, str, str]) -> list[Move]:
    """(copy, state, action) each."""
    seen = {"observation": "o", "next_state": "s", "next_observation": "o"}
    return [Move(copy=copy, state=state, action=action, **seen) for copy, state, action in made]


def test_a_move_repeats_what_its_own_copy_did() -> None:
    """A copy repeats what it did itself: another one has to walk the same way to get there."""
    walk = [
        step(0, None, action=None, moves=moves((1, "a", "x"), (2, "a", "x"))),
        step(1, 0, action=None, moves=moves((1, "a", "x"), (2, "a", "y"))),
        step(2, 1, action=None, moves=moves((3, "a", "x"))),
        step(3, 2, action=None, moves=moves((2, "a", "y"), (1, "a", "x"))),
        step(4, 3, action=None, moves=moves((1, "b", "x"))),
    ]
    assert [repetitions(walk[: number + 1]) for number in range(5)] == [0, 1, 1, 3, 3]


def test_summary_by_hand() -> None:
    rows = [
        episode("a", Outcome.SUCCESS),
        episode("b", Outcome.FAILURE),
        episode("c", Outcome.TRUNCATED, kind="run"),
        episode("d", Outcome.ERRORED, kind="run", steps=0),
    ]
    summary = summarise(rows)
    assert summary.success.rate == 1 / 4
    assert summary.success.interval == "wilson"
    assert summary.outcomes == {"success": 1, "failure": 1, "truncated": 1, "errored": 1}
    assert summary.inadmissible == pytest.approx(4 / 12)
    assert summary.steps == 3
    assert summary.kinds["walk"].success.rate == 1 / 2
    assert summary.kinds["run"].episodes == 2


def test_several_samples_are_bootstrapped_by_task() -> None:
    rows = [episode("a", Outcome.SUCCESS, sample=i) for i in range(3)] + [episode("b", Outcome.FAILURE)]
    summary = summarise(rows)
    assert summary.success.rate == 3 / 4
    assert summary.success.interval == "bootstrap"
    assert successes_by_task(rows) == {"a": [True] * 3, "b": [False]}
    alike = summarise([episode(task, Outcome.SUCCESS, sample=i) for task in "abcde" for i in range(3)]).success
    assert (alike.interval, alike.low, alike.high) == ("wilson", *wilson(5, 5))


def test_pass_at_k_averages_over_tasks() -> None:
    rows = [episode("a", Outcome.SUCCESS if i == 0 else Outcome.FAILURE, sample=i) for i in range(4)]
    rows += [episode("b", Outcome.FAILURE, sample=i) for i in range(4)]
    table = pass_at_k_summary(rows, 3)
    assert list(table) == ["1", "2", "3"]
    assert table["1"].rate == pytest.approx((1 / 4 + 0) / 2)
    assert table["2"].rate == pytest.approx((1 / 2 + 0) / 2)
    assert table["3"].low <= table["3"].rate <= table["3"].high


def test_an_empty_panel_has_no_rates() -> None:
    assert summarise([]).success.rate == 0.0
