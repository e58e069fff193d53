"""Offline PPO on a problem of two states whose values are known, and everything that must change nothing."""

import itertools

import msgspec
import pytest
from agentcli.policies.chat import prompt_ids
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import Credit, StepCredit
from agentcli.training.demonstrations import UnknownWords
from agentcli.training.metrics import OfflinePpoMetrics
from agentcli.training.offline_ppo import drawn, read_offline_rows
from agentcli.training.steps import read_rows
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused
from safetensors.torch import load_file
from stopping import Stopped, left
from tiny_rollout import logprobs_alone, write
from transformers import AutoModelForCausalLM
from valued import BETTER, STATES, WORSE, Taken, chance, credit_of, trained, trees_of, value

FIRST, SECOND = STATES
TAKEN = [
    *[Taken(FIRST, BETTER, 1.0), Taken(FIRST, WORSE, 0.0)] * 2,
    *[Taken(SECOND, BETTER, 0.8), Taken(SECOND, WORSE, 0.4)] * 2,
]
VALUES = {FIRST: 0.5, SECOND: 0.6}
SETTINGS = {
    "objective": "offline-ppo",
    "learning_rate": 1e-3,
    "rows_per_update": 8,
    "rows_per_microbatch": 8,
    "epochs": 4,
    "options": {"critic_learning_rate": 1e-2, "head": "linear"},
}


@pytest.fixture
def problem(rollout, tmp_path):
    """problem(name, ...) -> statistics and metrics lines of a training on TAKEN."""
    trees = write(tmp_path / "data" / "trees.jsonl", trees_of(TAKEN, rollout.tokenizer))
    credit = write(tmp_path / "data" / "credit.jsonl", credit_of(TAKEN))

    def call(name, trees=trees, credit=credit, model=rollout.model, **given):
        options = {**SETTINGS["options"], **given.pop("options", {})}
        statistics = trained(tmp_path / name, trees, credit, model, **{**SETTINGS, **given, "options": options})
        return statistics, list(read_records(tmp_path / name / "metrics.jsonl", OfflinePpoMetrics))

    return call


@pytest.mark.slow
def test_the_critic_finds_the_values_and_the_better_action_grows_likelier(problem, tmp_path, rollout):
    """Five trainings in a row, each on from the one before: the chance of the better action rises every time."""
    model, critic, carried = rollout.model, None, None
    chances = [[chance(model, state, BETTER) for state in STATES]]
    for number in range(5):
        folder = tmp_path / str(number)
        problem(str(number), model=model, critic=critic, optimizer_in=carried, epochs=8)
        model, critic, carried = folder / "checkpoint", folder / "critic", folder / "optimizer.safetensors"
        chances.append([chance(model, state, BETTER) for state in STATES])
    assert {state: value(critic, state) for state in STATES} == pytest.approx(VALUES, abs=0.05)
    for first, second in itertools.pairwise(chances):
        assert all(before < after for before, after in zip(first, second, strict=True)), chances
    assert chances[-1][0] > 1.5 * chances[0][0]


def test_with_old_start_advantages_are_taken_to_the_critic_before_training(problem):
    statistics, lines = problem("one", epochs=2, options={"old": "start"})
    assert statistics["means"]["advantage_mean"] == pytest.approx(0.55)
    assert [line.advantage_mean for line in lines] == pytest.approx([0.55, 0.55])
    assert lines[0].squared_log_ratio == pytest.approx(0, abs=1e-9)
    assert lines[0].value_loss == pytest.approx(sum(one.reward**2 for one in TAKEN) / 8, abs=1e-6)
    assert lines[1].value_loss < lines[0].value_loss


def test_every_epoch_takes_its_own_models_for_the_old_ones(problem, tmp_path):
    """Two epochs are two trainings in a row: old log-probabilities and values are those of the models after the first."""
    _, lines = problem("both", epochs=2, rows_per_update=3)
    problem("one", epochs=1, rows_per_update=3)
    folder = tmp_path / "one"
    values = {state: value(folder / "critic", state) for state in STATES}
    second = [line for line in lines if line.epoch == 1]
    assert second[0].squared_log_ratio == pytest.approx(0, abs=1e-9)
    assert second[1].squared_log_ratio > 0
    left = sum(one.reward - values[one.state] for one in TAKEN) / len(TAKEN)
    weights = [line.rows for line in second]
    mean = sum(weight * line.advantage_mean for weight, line in zip(weights, second, strict=True)) / len(TAKEN)
    assert mean == pytest.approx(left, abs=1e-5)


def test_an_epoch_ends_when_the_policy_has_moved_too_far(problem):
    given = {"rows_per_update": 2, "learning_rate": 2e-2, "options": {"beta": 0.0, "stop_at": 0.2}}
    statistics, lines = problem("stopped", **given)
    far = [line for line in lines if line.squared_log_ratio > 0.2]
    assert far
    assert far == [line for line in lines if line.stopped]
    assert statistics["epochs_stopped"] == len(far)
    for line in far:
        assert not any(other.epoch == line.epoch and other.update > line.update for other in lines)
    assert statistics["updates"] == len(lines) == 16 - statistics["updates_left_out"] < 16
    free, _ = problem("free", **{**given, "options": {"beta": 0.0, "stop_at": 1e9}})
    assert (free["updates"], free["updates_left_out"], free["epochs_stopped"]) == (16, 0, 0)


def test_a_rule_that_keeps_more_learns_from_no_more(problem):
    all_of_them, _ = problem("all", options={"most_rows": 8})
    assert (all_of_them["rows"], all_of_them["rows_not_drawn"]) == (8, 0)
    statistics, lines = problem("some", options={"most_rows": 5, "stop_at": 1e9})
    assert (statistics["rows"], statistics["rows_not_drawn"]) == (5, 3)
    assert [line.rows for line in lines] == [5] * 4


@given(count=st.integers(1, 40), most=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_the_rows_that_are_drawn_keep_their_order(count, most, seed):
    rows = list(range(count))
    found = drawn(rows, min(most, count), seed)
    assert found == sorted(set(found))
    assert len(found) == min(most, count)
    assert set(found) <= set(rows)


def test_the_penalty_holds_the_policy_back(problem):
    far, _ = problem("free", rows_per_update=4, options={"beta": 0.0})
    near, lines = problem("held", rows_per_update=4, options={"beta": 5.0})
    assert 0 < near["means"]["squared_log_ratio"] < far["means"]["squared_log_ratio"]
    last = lines[-1]
    assert last.loss == pytest.approx(5.0 * last.squared_log_ratio - last.surrogate, rel=1e-5)


def test_microbatches_change_nothing(problem, tmp_path):
    problem("whole")
    problem("pieces", rows_per_microbatch=3)
    for part in ("checkpoint", "critic"):
        whole, pieces = (load_file(tmp_path / name / part / "model.safetensors") for name in ("whole", "pieces"))
        assert all((whole[name] - pieces[name]).abs().max() < 2e-4 for name in whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {"lora": LoraSettings(rank=4, alpha=8, dropout=0.3), "options": {"head": "mlp"}}, marks=pytest.mark.slow
        ),
        pytest.param({"learning_rate": 2e-2, "options": {"stop_at": 0.05, "beta": 0.0}}, marks=pytest.mark.slow),
        {"options": {"old": "start"}},
    ],
    ids=["lora", "early stop", "old start"],
)
def test_a_stopped_training_ends_with_the_same_bits(problem, tmp_path, given):
    given = {"rows_per_update": 3, "rows_per_microbatch": 2, "save_every_updates": 2, **given}
    statistics, _ = problem("whole", **given)
    for update in (2, 5):
        with pytest.raises(Stopped):
            problem("parts", progress=stop_at_least(update), **given)
        assert not (tmp_path / "parts" / "checkpoint").exists()
    assert problem("parts", **given)[0] == statistics
    assert left(tmp_path / "parts") == left(tmp_path / "whole")
    if "lora" not in given and "learning_rate" in given:
        assert statistics["epochs_stopped"] > 0


def stop_at_least(update):
    """Stops after the first update from this one on: an early stop leaves numbers out."""

    def progress(done, total, figures):
        if figures and done >= update:
            raise Stopped

    return progress


def test_the_noted_action_is_learned_in_place_of_the_response(problem, rollout, tmp_path):
    trees = trees_of(TAKEN, rollout.tokenizer)
    for tree in trees:
        tree.steps[0].notes["trained"] = " ".join(tree.steps[0].response for _ in range(2))
        tree.steps[0].token_ids, tree.steps[0].logprobs = [], []
    statistics, lines = problem("noted", trees=write(tmp_path / "noted.jsonl", trees), epochs=1)
    assert (statistics["rows"], statistics["rows_of_notes"]) == (8, 8)
    assert lines[0].tokens == 8 * 3  # two words and the end of the turn
    assert lines[0].ratio_mean == pytest.approx(1, abs=1e-6)


def test_old_probabilities_are_the_starting_policys_at_the_temperature_of_the_step(problem, rollout, tmp_path):
    """One row, one update: the second update's log-ratio against the policy before and after, by plain transformers."""
    trees = trees_of(TAKEN[:1], rollout.tokenizer)
    trees[0].steps[0].temperature = 0.5
    given = {"trees": write(tmp_path / "cold.jsonl", trees)}
    given["credit"] = write(tmp_path / "cold-credit.jsonl", credit_of(TAKEN[:1]))
    problem("once", epochs=1, **given)
    _, lines = problem("twice", epochs=2, options={"old": "start"}, **given)
    prompt, ids = prompt_ids(rollout.tokenizer, FIRST), trees[0].steps[0].token_ids
    before, after = (
        sum(logprobs_alone(AutoModelForCausalLM.from_pretrained(folder), prompt, ids, 0.5))
        for folder in (rollout.model, tmp_path / "once" / "checkpoint")
    )
    assert lines[1].squared_log_ratio == pytest.approx((after - before) ** 2, rel=1e-3)


def test_masked_steps_are_left_out_and_bad_credit_is_refused(problem, tmp_path, rollout):
    credit = credit_of(TAKEN)
    credit[3].steps[0] = msgspec.structs.replace(credit[3].steps[0], advantage=None, masked="process")
    statistics, _ = problem("masked", credit=write(tmp_path / "masked.jsonl", credit), epochs=1)
    assert (statistics["rows"], statistics["rows_unassigned"]) == (7, 1)
    credit[0].steps[0].parts.pop("return")
    bare = write(tmp_path / "bare.jsonl", credit)
    refused(lambda: problem("bare", credit=bare), 3, (f"{bare}:1", "return"), "rare-tool")
    trees = trees_of(TAKEN, rollout.tokenizer)
    trees[1].steps[0].temperature = 0.0
    greedy = write(tmp_path / "greedy.jsonl", trees)
    refused(lambda: problem("greedy", trees=greedy), 3, f"{greedy}:2", "--temperature")


def test_words_of_an_executed_action_that_the_tokenizer_does_not_know_are_named(problem, rollout, tmp_path, caplog):
    trees = trees_of(TAKEN, rollout.tokenizer)
    trees[0].steps[0].notes["trained"] = "<think> go </think><action> zebra </action>"
    path = write(tmp_path / "strange" / "trees.jsonl", trees)
    statistics, _ = problem("strange", trees=path, epochs=1)
    assert statistics["unknown_words"]["zebra"] == 1
    assert statistics["unknown_tokens"] == sum(statistics["unknown_words"].values())
    (record,) = [record for record in caplog.records if "zebra" in record.getMessage()]
    assert str(rollout.model) in record.getMessage()
    known, _ = problem("known", epochs=1)
    assert known["unknown_tokens"] == 0


def test_a_row_belongs_to_a_trajectory_as_in_other_objectives(rollout, tmp_path):
    """Where train.order=trajectories, the rows of one follow one another."""
    credits = []
    for tree in rollout.tree_list:
        entries = [StepCredit(step=step.id, advantage=1.0, parts={"return": 1.0}) for step in tree.steps]
        credits.append(Credit(task=tree.task.id, method="test", steps=entries))
    credit = write(tmp_path / "credit.jsonl", credits)
    chat = ChatTokens(rollout.tokenizer, None, 0)
    rows, _ = read_offline_rows(rollout.trees, credit, chat, UnknownWords(rollout.tokenizer))
    others, _ = read_rows(rollout.trees, credit)
    places = [(row.tree, row.trajectory) for row in rows]
    assert places == [(row.tree, row.trajectory) for row in others]
    assert len({number for _, number in places}) > 1
