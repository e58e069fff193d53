"""Microbatches by rows or tokens: what they hold, and that gradients do not know of them."""

import random
from itertools import pairwise

import pytest
import torch
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.prompts.protocol import Message
from agentcli.records.training_settings import SftSettings, TinySettings, TrainSettings
from agentcli.training.demonstrations import Sample
from agentcli.training.imitation import plan_imitation
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import target_scores
from agentcli.training.loop.microbatches import Limit, RowPath, paths_of
from agentcli.training.policy_gradient.batches import Tokens, collate, packed_as_set, plan_updates
from agentcli.training.policy_gradient.losses import token_losses
from agentcli.training.steps import Row
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_rollout import WORDS

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)
COUNT = st.integers(1, 12)


def alone(lengths):
    return [RowPath([place], length) for place, length in enumerate(lengths)]


def padded(part, lengths):
    return len(part) * max(lengths[place] for place in part)


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, tokens=st.integers(1, 120), count=COUNT)
def test_tokens_stay_under_the_limit(lengths, tokens, count):
    lengths.sort()
    limit = Limit(1, tokens)
    paths = alone(lengths)
    fewest = [[row for path in part for row in path.rows] for part in limit.cut(paths)]
    for parts in (fewest, limit.dealt(paths, max(count, len(fewest)), False)):
        assert [place for part in parts for place in part] == list(range(len(lengths)))
        for part in filter(None, parts):
            assert padded(part, lengths) <= tokens or len(part) == 1
    for part, after in pairwise(fewest):
        assert padded([*part, after[0]], lengths) > tokens
    dealt = limit.dealt(paths, max(count, len(fewest)), False)
    assert len(dealt) == max(count, len(fewest))
    assert sum(map(bool, dealt)) == min(len(dealt), len(lengths))


@settings(max_examples=50, deadline=None)
@given(lengths=LENGTHS, rows=st.integers(1, 9), count=COUNT)
def test_rows_are_counted_where_tokens_are_not_limited(lengths, rows, count):
    paths = alone(lengths)
    assert Limit(rows).counts_rows([paths])
    cut = Limit(rows).cut(paths)
    assert [len(part) for part in cut[:-1]] == [rows] * (len(cut) - 1)
    sizes = [len(part) for part in Limit(rows).dealt(paths, count, True)]
    assert (len(sizes), sum(sizes)) == (count, len(lengths))
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), rows=st.integers(1, 9), count=COUNT)
def test_a_conversation_is_never_cut(sizes, rows, count):
    """Chats of so many steps: the steps of one are a path, and a microbatch holds whole ones."""
    steps = [([chat, *range(10, 10 + 2 * turn)], [50, 51]) for chat, size in enumerate(sizes) for turn in range(size)]
    paths = paths_of(range(len(steps)), steps.__getitem__, True)
    assert [len(path.rows) for path in paths] == [1] * len(steps)  # a prompt without the response before it
    chats = [([chat, *[60, 61, 62] * turn], [60, 61]) for chat, size in enumerate(sizes) for turn in range(size)]
    paths = paths_of(range(len(chats)), chats.__getitem__, True)
    assert [len(path.rows) for path in paths] == sizes
    assert [path.length for path in paths] == [3 * size for size in sizes]
    limit = Limit(rows)
    assert limit.counts_rows([paths]) == (max(sizes) == 1)
    fewest = limit.cut(paths)
    assert [path for part in fewest for path in part] == paths
    for part in fewest:
        assert sum(len(path.rows) for path in part) <= rows or len(part) == 1
    # Only where there are fewer conversations than microbatches, long ones are halved.
    dealt = limit.dealt(paths, count, False) if count >= len(fewest) else limit.dealt(paths, len(fewest), False)
    assert [row for part in dealt for row in part] == list(range(len(chats)))
    assert sum(map(bool, dealt)) == min(len(dealt), len(chats))
    if len(dealt) <= len(paths):
        ends = {path.rows[-1] for path in paths}
        assert {part[-1] for part in dealt} <= ends


def drawn_plan(seed, world, **given):
    """Rows of three prompts, of which some cannot have a gradient."""
    draw = random.Random(seed)
    rows = []
    prompts = []
    offsets = [0]
    for number in range(draw.randint(1, 14)):
        response = draw.choices(range(5, 30), k=draw.randint(1, 12))
        advantage = draw.choice([0.0, 1.0, -0.5])
        prompts.append([number % 3 + 5] * (3 + 9 * (number % 3)))
        rows.append(Row("row", Message(("",)), response, [-1.0] * len(response), advantage, 1.0, 1.0))
        offsets.append(offsets[-1] + len(response))
    tokens = Tokens(prompts, [row.token_ids for row in rows], offsets, torch.full((offsets[-1],), -4.0))
    chosen = TrainSettings(aggregate="token", beta=0.0, **given)
    return plan_updates(rows, tokens, chosen, seed, world), chosen


def gradients(model, plans):
    """Of the first update, over all ranks."""
    model.zero_grad()
    for plan in plans:
        for part in plan.parts()[: plan.microbatches_per_update]:
            batch = collate(plan, 0, part)
            logprobs, _ = target_scores(model, batch)
            losses = token_losses(logprobs, batch, TrainSettings(beta=0.0))
            (batch["weights_N"] * losses.loss_N).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 3),
    packing=st.sampled_from(["on", "off"]),
    limit=st.fixed_dictionaries({"tokens_per_microbatch": st.integers(1, 200)})
    | st.fixed_dictionaries({"rows_per_microbatch": st.integers(1, 20)}),
)
def test_gradients_are_equal_whatever_the_grouping(seed, size, packing, limit):
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    model = make_model(TinySettings(hidden=32, layers=1, heads=2, kv_heads=1, intermediate=48), tokenizer, 0)
    whole, _ = drawn_plan(seed, Processes(0, 1))
    if not whole.updates:
        return
    pieces = []
    for rank in range(size):
        plan, chosen = drawn_plan(seed, Processes(rank, size), packing=packing, **limit)
        pieces.append(packed_as_set(plan, chosen, model))
    expected = gradients(model, [whole])
    for name, gradient in gradients(model, pieces).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-5)


def test_an_update_has_as_many_microbatches_as_its_tokens_need():
    plan, _ = drawn_plan(3, Processes(0, 1), rows_per_update=4, tokens_per_microbatch=60, epochs=3)
    counts = {len(update.microbatches) for update in plan.updates}
    assert counts == {plan.microbatches_per_update}
    alone, _ = drawn_plan(3, Processes(0, 1), rows_per_update=4, tokens_per_microbatch=1)
    assert {len(rows) for update in alone.updates for rows in update.microbatches} <= {0, 1}


@pytest.mark.parametrize("ranks", [1, 2])
def test_samples_of_an_update_are_dealt_by_their_tokens(ranks):
    samples = [Sample([7] * (2 + 30 * (number % 5 == 0)), [9]) for number in range(24)]
    chosen = SftSettings(samples_per_update=12, tokens_per_microbatch=66)
    plans = [plan_imitation(samples, 4, chosen, 0, Processes(rank, ranks)) for rank in range(ranks)]
    parts = [plan.parts() for plan in plans]
    assert {len(part) for part in parts} == {4 * plans[0].microbatches_per_update}
    plain = plan_imitation(
        samples, 4, SftSettings(samples_per_update=12, samples_per_microbatch=12), 0, Processes(0, 1)
    )
    for update, whole in enumerate(plain.parts()):
        start = update * plans[0].microbatches_per_update
        of_update = [part for each in parts for part in each[start : start + plans[0].microbatches_per_update]]
        assert sorted(sample for part in of_update for sample in part.samples) == sorted(whole.samples)
        assert {part.update_tokens for part in of_update} == {whole.update_tokens}
        for part in of_update:
            sizes = [len(sample.prompt) + len(sample.response) for sample in part.samples]
            assert len(sizes) * max(sizes) <= 66
