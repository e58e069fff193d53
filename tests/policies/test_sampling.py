"""Noise from a hash: distributed as it should be, and a function of (seed, position, column) alone."""

import pytest
import torch
from scipy import stats

from agentcli.policies.sampling import Sampler, gumbel


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


def test_logprobs_are_untempered_and_padding_rows_end_at_once() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(3, 1)
    sampler = Sampler([2**64 - 1, 5], [0.1, 0.0], 1, torch.device("cpu"))
    scores = sampler(torch.zeros(3, 1, dtype=torch.int64), logits.clone())
    chosen = scores.argmax(-1)
    assert chosen[1:].tolist() == [2, 1]
    rows = sampler.logprobs(chosen[:, None])
    expected = torch.log_softmax(logits[0], -1)
    assert rows == [[round(float(expected[chosen[0]]), 6)], [round(float(expected[2]), 6)]]
