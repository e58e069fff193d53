"""Preference pairs: which trajectories are paired, what is left of them, and what is refused."""

from collections import Counter
from itertools import product

import credit_trees
import msgspec
import pytest
from agentcli.records.types import Outcome, Tree
from agentcli.training.steps import PairCounts, read_pairs
from hypothesis import given
from hypothesis import strategies as st
from pair_trees import FORKED, GROUP, HOPELESS, SOLVED, pair_tree
from refusal import refused
from tiny_rollout import write
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="module")
def trees(rollout):
    model = AutoModelForCausalLM.from_pretrained(rollout.model)
    shapes = [FORKED, HOPELESS, GROUP, SOLVED]
    return [pair_tree(number, shape, model, rollout.tokenizer) for number, shape in enumerate(shapes)]


def ids(pair):
    return [step.id for step in pair.chosen], [step.id for step in pair.rejected]


def group(successes, failures):
    """One tree of single-step trajectories, each with a token of its own."""
    outcomes = [Outcome.SUCCESS] * successes + [Outcome.FAILURE] * failures
    steps = []
    for index, outcome in enumerate(outcomes):
        steps.append(credit_trees.step(index, None, token_ids=[index], logprobs=[-1.0], outcome=outcome))
    return credit_trees.tree(*steps)


def test_every_success_meets_every_failure_without_what_they_share(trees, tmp_path):
    counts = PairCounts()
    pairs = list(read_pairs(write(tmp_path / "trees.jsonl", trees), 8, 0, counts))
    forked = sorted(ids(pair) for pair in pairs if "task-0" in pair.place)
    assert forked == [([0, 1, 2], [5, 6]), ([2], [3, 4])]  # 7 errored
    grouped = sorted(ids(pair) for pair in pairs if "task-2" in pair.place)
    assert grouped == sorted(product([[0, 1], [4, 5, 6]], [[2, 3], [7]]))
    assert all(pair.place.startswith(f"{tmp_path}/trees.jsonl:") for pair in pairs)
    assert counts == PairCounts(
        trees=4, successes=5, failures=6, trees_without_pair=2, pairs=6, pairs_beyond_limit=0, shared_steps=2
    )


def test_the_same_words_in_separate_samples_are_shared_too(trees, tmp_path):
    tree = msgspec.convert(msgspec.to_builtins(trees[2]), Tree)
    tree.steps[2].prompt = tree.steps[0].prompt
    tree.steps[2].token_ids, tree.steps[2].logprobs = tree.steps[0].token_ids, tree.steps[0].logprobs
    pairs = list(read_pairs(write(tmp_path / "trees.jsonl", [tree]), 8, 0))
    assert ([1], [3]) in map(ids, pairs)
    tree.steps[3].prompt = tree.steps[1].prompt
    tree.steps[3].token_ids, tree.steps[3].logprobs = tree.steps[1].token_ids, tree.steps[1].logprobs
    counts = PairCounts()
    pairs = list(read_pairs(write(tmp_path / "trees.jsonl", [tree]), 8, 0, counts))
    assert (counts.pairs, counts.pairs_alike, len(pairs)) == (3, 1, 3)


@given(st.integers(0, 7), st.integers(0, 7), st.integers(1, 60), st.integers(0, 3))
def test_pairs_are_distinct_and_use_all_trajectories_evenly(tmp_path_factory, successes, failures, limit, seed):
    path = write(tmp_path_factory.getbasetemp() / "group.jsonl", [group(successes, failures)])
    counts = PairCounts()
    found = [
        (won, lost)
        for pair in read_pairs(path, limit, seed, counts)
        for won, lost in [(pair.chosen[0], pair.rejected[0])]
    ]
    combinations = successes * failures
    assert len(found) == len({(won.id, lost.id) for won, lost in found}) == min(limit, combinations) == counts.pairs
    assert counts.pairs_beyond_limit == combinations - len(found)
    assert counts.trees_without_pair == (combinations == 0)
    for side, size in ((0, successes), (1, failures)):
        uses = Counter(pair[side].id for pair in found)
        assert all(pair[side].outcome == (Outcome.SUCCESS, Outcome.FAILURE)[side] for pair in found)
        if found:
            assert max(uses.values()) - (min(uses.values()) if len(uses) == size else 0) <= 1


def test_the_seed_decides_and_nothing_else(trees, tmp_path):
    path = write(tmp_path / "trees.jsonl", [group(6, 6), trees[2]])

    def chosen(path, seed, limit=4):
        return [(pair.place.rpartition(":")[2], *ids(pair)) for pair in read_pairs(path, limit, seed)]

    assert chosen(path, 0) == chosen(path, 0)
    assert len({str(chosen(path, seed)) for seed in range(4)}) > 1
    alone = write(tmp_path / "alone.jsonl", [group(6, 6)])
    assert chosen(path, 0)[:4] == chosen(alone, 0)


def test_a_limit_takes_the_first_of_the_same_order(tmp_path):
    path = write(tmp_path / "trees.jsonl", [group(3, 5)])
    everything = [ids(pair) for pair in read_pairs(path, 100, 0)]
    assert [ids(pair) for pair in read_pairs(path, 4, 0)] == everything[:4]


def test_refuses_what_no_model_sampled(trees, tmp_path):
    tree = msgspec.convert(msgspec.to_builtins(trees[2]), Tree)
    tree.steps[2].token_ids, tree.steps[2].logprobs = [], []
    refused(
        lambda: list(read_pairs(write(tmp_path / "trees.jsonl", [trees[0], tree]), 8, 0)),
        3,
        names=("trees.jsonl:2", "steps[2].token_ids"),
    )


def test_refuses_a_tree_that_is_none(trees, tmp_path):
    tree = msgspec.convert(msgspec.to_builtins(trees[0]), Tree)
    tree.steps[0].outcome = Outcome.SUCCESS
    refused(
        lambda: list(read_pairs(write(tmp_path / "trees.jsonl", [tree]), 8, 0)),
        3,
        names=("trees.jsonl:1", "steps[0].outcome"),
    )


def test_streams(trees, tmp_path):
    """The first pairs come before a later line is read."""
    path = write(tmp_path / "trees.jsonl", [trees[0]])
    with open(path, "ab") as file:
        file.write(b"no tree\n")
    pairs = read_pairs(path, 8, 0)
    assert next(pairs).chosen
    refused(lambda: list(pairs), 3, names="trees.jsonl:2")
