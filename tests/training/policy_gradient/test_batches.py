"""The plan: every row once an epoch, weights that are whole, and ranks that share the work without overlap."""

import random

import pytest
import torch
from agentcli.prompts.protocol import Message
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.distributed import Processes
from agentcli.training.policy_gradient.batches import Tokens, collate, plan_updates
from agentcli.training.steps import Row


def rows_of(count, zeros=()):
    rng = random.Random(1)
    rows = []
    for number in range(count):
        size, advantage, share = rng.randint(1, 5), rng.gauss(0, 1), rng.random()
        advantage = 0.0 if number in zeros else advantage
        rows.append(Row(f"row {number}", Message(("p",)), [number % 7] * size, [-1.0] * size, advantage, 1.0, share))
    return rows


def tokens_of(rows):
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row.token_ids))
    old = torch.arange(offsets[-1], dtype=torch.float32)
    return Tokens(
        [[1] * (3 + number % 4) for number in range(len(rows))], [row.token_ids for row in rows], offsets, old
    )


def plan(rows, seed=0, world=None, **settings):
    world = world or Processes(0, 1)
    return plan_updates(
        rows, tokens_of(rows), TrainSettings(**{"aggregate": "step", "beta": 0.0, **settings}), seed, world
    )


def test_every_row_once_an_epoch_in_another_order():
    rows = rows_of(22)
    made = plan(rows, rows_per_update=8, epochs=2)
    assert [len(update.rows) for update in made.updates] == [8, 8, 6, 8, 8, 6]
    epochs = [[row for update in made.updates if update.epoch == epoch for row in update.rows] for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(22))
    assert epochs[0] != epochs[1]
    assert [update.rows for update in plan(rows, rows_per_update=8).updates] == [
        update.rows for update in made.updates[:3]
    ]
    assert plan(rows, seed=1, rows_per_update=8).updates[0].rows != made.updates[0].rows


@pytest.mark.parametrize("aggregate", ["step", "token", "sequence"])
def test_rows_that_cannot_have_a_gradient_keep_their_weight_in_the_normaliser(aggregate):
    with_zeros = plan(rows_of(16, zeros=range(0, 16, 3)), rows_per_update=16, aggregate=aggregate).updates[0]
    without = plan(rows_of(16), rows_per_update=16, aggregate=aggregate).updates[0]
    assert set(with_zeros.weights) == {row for row in range(16) if row % 3}
    assert all(without.weights[row] == weight for row, weight in with_zeros.weights.items())
    assert len(with_zeros.rows) == 16


def test_an_update_of_zeros_is_left_out():
    made = plan(rows_of(4, zeros=range(4)), rows_per_update=2)
    assert (made.updates, made.skipped) == ([], 2)


@pytest.mark.parametrize(("size", "microbatch"), [(1, 16), (2, 3), (3, 2), (4, 16)])
def test_ranks_and_microbatches_cover_an_update_exactly(size, microbatch):
    rows = rows_of(19, zeros={0, 5, 6, 11, 12, 13})
    settings = {"rows_per_update": 8, "rows_per_microbatch": microbatch}
    weights: dict[float, float] = {}
    rows_run = 0
    for rank in range(size):
        made = plan(rows, world=Processes(rank, size), **settings)
        parts = made.parts()
        assert len(parts) == len(made.updates) * made.microbatches_per_update
        for item in (collate(made, 0, part) for part in parts):
            assert len(item["ids_BT"]) <= microbatch
            assert len(item["old_N"]) == int(item["response_BT"].sum())
            rows_run += int(item["rows_1"])
            for old, weight in zip(item["old_N"].tolist(), item["weights_N"].tolist(), strict=True):
                weights[old] = weights.get(old, 0.0) + weight
    alone = plan(rows, **settings)
    assert rows_run == 13
    for update in alone.updates:
        for row, weight in update.weights.items():
            for position in range(alone.tokens.offsets[row], alone.tokens.offsets[row + 1]):
                assert weights.pop(position) == pytest.approx(weight, rel=1e-6)
    assert not any(weights.values())


def test_an_item_lines_up_with_its_tokens():
    rows = rows_of(6)
    made = plan(rows, rows_per_update=6)
    item = collate(made, 99, made.parts()[0])
    assert item["ids_BT"][item["response_BT"]].tolist() == [
        token for row in made.updates[0].microbatches[0] for token in rows[row].token_ids
    ]
    expected = [rows[row].advantage for row in made.updates[0].microbatches[0] for _ in rows[row].token_ids]
    assert item["advantages_N"].tolist() == pytest.approx(expected)
    order = made.updates[0].microbatches[0]
    assert torch.equal(made.tokens.gather(made.tokens.old, order), item["old_N"])
    back = torch.zeros_like(made.tokens.old)
    made.tokens.scatter(back, order, item["old_N"])
    assert torch.equal(back, made.tokens.old)
