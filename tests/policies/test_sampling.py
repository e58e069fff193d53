"""Noise from a hash: distributed as it should be, and a function of (seed, position, column) alone."""

import pytest
import torch
from agentcli.policies.sampling import Sampler, gumbel
from scipy import stats


def seeds(count: int, start: int = 0) -> torch.Tensor:
    return torch.arange(start, start + count, dtype=torch.int64)


def test_noise_is_standard_gumbel_along_every_axis() -> None:
    noise = gumbel(seeds(200), 0, 500)
    positions = torch.cat([gumbel(seeds(1), position, 500) for position in range(200)])
    for sample in (noise.flatten(), noise[:, 7], noise[3], positions.flatten(), positions[:, 0]):
        assert stats.kstest(sample.numpy(), stats.gumbel_r.cdf).pvalue > 1e-3
    for other in (noise.roll(1, 0), noise.roll(1, 1), positions, positions.roll(1, 0)):
        assert abs(float(torch.corrcoef(torch.stack([noise.flatten(), other.flatten()]))[0, 1])) < 0.02


def test_the_tail_that_decides_draws_is_there() -> None:
    assert float(gumbel(seeds(500), 0, 4000).max()) == pytest.approx(14.5, abs=3.0)


@pytest.mark.parametrize("vocabulary", [3, 64, 129, 500])
def test_noise_depends_on_seed_position_and_column_only(vocabulary: int) -> None:
    together = gumbel(seeds(9), 4, vocabulary)
    for row in range(9):
        assert torch.equal(together[row : row + 1], gumbel(seeds(1, row), 4, vocabulary))
    assert torch.equal(gumbel(seeds(2), 4, 600)[:, :vocabulary], gumbel(seeds(2), 4, vocabulary))
    assert not torch.equal(together, gumbel(seeds(9), 5, vocabulary))


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.0])
def test_draws_follow_the_tempered_softmax(temperature: float) -> None:
    count, logits = 20000, torch.tensor([1.0, 0.0, -1.0, 2.0, -3.0])
    sampler = Sampler(range(count), [temperature] * count, 0, torch.device("cpu"))
    drawn = sampler(torch.zeros(count, 1, dtype=torch.int64), logits.repeat(count, 1)).argmax(-1)
    expected = torch.softmax(logits.double() / temperature, -1) * count
    assert stats.chisquare(torch.bincount(drawn, minlength=5).numpy(), expected.numpy()).pvalue > 1e-3


def test_logprobs_are_of_the_sampled_distribution_and_padding_rows_end_at_once() -> None:
    """Each row at its own temperature; greedy at 1."""
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(4, 1)
    sampler = Sampler([2**64 - 1, 5, 6], [0.4, 0.0, 3.0], 1, torch.device("cpu"))
    scores = sampler(torch.zeros(4, 1, dtype=torch.int64), logits.clone())
    chosen = scores.argmax(-1)
    assert chosen[1::2].tolist() == [2, 1]
    rows = sampler.logprobs(chosen[:, None])
    divided = [torch.log_softmax(logits[0] / divisor, -1) for divisor in (0.4, 1.0, 3.0)]
    assert rows == [[round(float(row[token]), 6)] for row, token in zip(divided, chosen, strict=False)]


def test_temperature_one_is_not_divided_by() -> None:
    """The same bits as log_softmax of the logits, alone and beside rows of other temperatures."""
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    noise = gumbel(seeds(1), 0, 50)
    for temperatures in ([1.0], [1.0, 0.4], [1.0, 0.0]):
        count = len(temperatures)
        sampler = Sampler(range(count), temperatures, 0, torch.device("cpu"))
        scores = sampler(torch.zeros(count, 1, dtype=torch.int64), logits[:count].clone())
        assert torch.equal(scores[:1], logits[:1] + noise)
        assert sampler._pending_BV is not None
        assert torch.equal(sampler._pending_BV[:1], torch.log_softmax(logits[:1], -1))
    assert not Sampler([1, 2], [1.0, 0.0], 0, torch.device("cpu"))._divides


def test_a_temperature_next_to_nothing_leaves_the_largest() -> None:
    logits = torch.tensor([[1.0, 300.0, -2.0]])
    sampler = Sampler([3], [1e-300], 0, torch.device("cpu"))
    chosen = sampler(torch.zeros(1, 1, dtype=torch.int64), logits.clone()).argmax(-1)
    assert chosen.tolist() == [1]
    assert sampler.logprobs(chosen[:, None]) == [[0.0]]


def test_every_token_can_be_drawn() -> None:
    """Where the hash is next to 2^31, float32 would round the uniform number to 1, and its noise would be minus infinity."""
    noise = gumbel(torch.tensor([253]), 0, 152_000)
    assert torch.isfinite(noise).all()
    assert int(noise.argmin()) == 82552
