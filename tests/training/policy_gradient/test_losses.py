"""The loss against arithmetic written down a second time, without tensors."""

import math

import numpy as np
import pytest
import torch
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.forward import token_logprobs
from agentcli.training.policy_gradient.losses import (
    k3,
    logprob_gap,
    row_sums,
    token_entropies,
    token_losses,
    token_weights,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def losses_of(logprobs, old, advantages, sampled=None, reference=None, lengths=None, **switches):
    batch = {"old_N": old, "advantages_N": advantages, "sampled_N": sampled, "reference_N": reference}
    batch["lengths_B"] = None if lengths is None else torch.tensor(lengths)
    given = {name: value for name, value in batch.items() if value is not None}
    return token_losses(logprobs, given, TrainSettings(**{"beta": 0.0, **switches}))


def by_hand(logprob, old, advantage, reference, sampled, clip, clip_high, dual_clip, importance_cap, beta):
    ratio = math.exp(logprob - old)
    clipped = min(max(ratio, 1 - clip), 1 + (clip_high or clip))
    surrogate = min(ratio * advantage, clipped * advantage)
    if dual_clip and advantage < 0:
        surrogate = max(surrogate, dual_clip * advantage)
    if importance_cap:
        surrogate *= min(importance_cap, math.exp(old - sampled))
    kl = math.exp(reference - logprob) - (reference - logprob) - 1
    return -surrogate + beta * kl


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(-5, 0)] * 2, st.floats(-3, 3), *[st.floats(-5, 0)] * 2), min_size=1, max_size=8),
    st.fixed_dictionaries(
        {
            "clip": st.sampled_from([0.1, 0.2]),
            "clip_high": st.sampled_from([None, 0.28]),
            "dual_clip": st.sampled_from([None, 1.05, 3.0]),
            "importance_cap": st.sampled_from([None, 0.5, 2.0]),
            "beta": st.sampled_from([0.0, 0.01, 1.0]),
        }
    ),
)
def test_token_losses_equal_the_formula(tokens, switches):
    logprobs, old, advantages, reference, sampled = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True)
    )
    losses = losses_of(logprobs, old, advantages, sampled, reference, **switches)
    expected = [by_hand(*token, **switches) for token in tokens]
    np.testing.assert_allclose(losses.loss_N.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_clipped_tokens_are_exactly_those_without_a_gradient():
    logprobs = torch.tensor([0.5, 0.5, -0.5, -0.5, 0.1, 0.5], requires_grad=True)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    losses = losses_of(logprobs, torch.zeros(6), advantages, clip=0.2)
    losses.loss_N.sum().backward()
    assert losses.clipped_N.tolist() == [True, False, False, True, False, False]
    assert (logprobs.grad == 0).tolist() == [True, False, False, True, False, True]


@pytest.mark.parametrize("old", [-100.0, -9999.0])
@pytest.mark.parametrize(("advantage", "dual_clip"), [(1.0, None), (0.0, None), (-1.0, 3.0)])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_a_token_that_the_sampler_thought_impossible_has_no_gradient_beyond_the_clip(ratio, old, advantage, dual_clip):
    """exp(88.8) is infinite in float32, and 0 times infinity no number."""
    logprobs = torch.tensor([-0.5, -0.5], requires_grad=True)
    olds = torch.tensor([old, old])
    switches = {"clip": 0.2, "dual_clip": dual_clip, "ratio": ratio, "lengths": [1, 1]}
    losses = losses_of(logprobs, olds, torch.full((2,), advantage), **switches)
    losses.loss_N.sum().backward()
    bound = 1.2 * advantage if dual_clip is None else 3 * advantage
    assert losses.loss_N.tolist() == pytest.approx([-bound, -bound])
    assert logprobs.grad.tolist() == [0, 0]


def test_what_nothing_clips_stays_infinite():
    """A sampler's impossible token that turned out bad: no finite number would be right."""
    losses = losses_of(torch.tensor([-0.5]), torch.tensor([-9999.0]), torch.tensor([-1.0]), clip=0.2)
    assert losses.loss_N.item() == math.inf


def test_other_bounds_clip_other_tokens():
    """Ratios e^0.5 = 1.65, e^-0.5 = 0.61 and e^1.2 = 3.3."""
    logprobs = torch.tensor([0.5, 0.5, -0.5, -0.5, 1.2], requires_grad=True)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0])
    losses = losses_of(logprobs, torch.zeros(5), advantages, clip=0.2, clip_high=0.7, dual_clip=3.0)
    losses.loss_N.sum().backward()
    assert losses.clipped_N.tolist() == [False, False, False, True, True]
    assert (logprobs.grad == 0).tolist() == [False, False, False, True, True]
    assert losses.surrogate_N[-1].item() == -3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=5), min_size=1, max_size=5),
    st.lists(st.sampled_from([-2.0, -1.0, 0.5, 1.0]), min_size=5, max_size=5),
)
def test_a_ratio_of_sequences_is_the_geometric_mean(rows, signs):
    """GSPO eq. 7; a row's tokens have one gradient each, -ratio * A / length, or none at all."""
    lengths = [len(row) for row in rows]
    differences = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    logprobs = (differences - 2).requires_grad_()
    advantages = torch.tensor(signs[: len(rows)], dtype=torch.float64).repeat_interleave(torch.tensor(lengths))
    losses = losses_of(
        logprobs, torch.full_like(differences, -2), advantages, lengths=lengths, ratio="sequence", clip=0.2
    )
    weights = torch.cat([torch.full((length,), 1 / length, dtype=torch.float64) for length in lengths])
    (weights * losses.loss_N).sum().backward()
    place = 0
    for row, sign in zip(rows, signs, strict=False):
        ratio = math.prod(map(math.exp, row)) ** (1 / len(row))
        clipped = min(max(ratio, 0.8), 1.2)
        slope = -ratio * sign if ratio * sign <= clipped * sign else 0.0
        here = slice(place, place := place + len(row))
        np.testing.assert_allclose(losses.ratio_N[here].detach(), ratio)
        np.testing.assert_allclose(losses.loss_N[here].detach(), -min(ratio * sign, clipped * sign))
        if abs(ratio - clipped) > 1e-9 or 0.8 + 1e-9 < ratio < 1.2 - 1e-9:
            np.testing.assert_allclose(logprobs.grad[here], slope / len(row), atol=1e-12)


@pytest.mark.parametrize("cap", [None, 1.0, 1.5, 1e9])
@pytest.mark.parametrize(("trainer", "sampler"), [(0.5, 0.2), (0.3, 0.6), (0.4, 0.4)])
def test_importance_weights_give_the_trainers_own_gradient(trainer, sampler, cap):
    """Two actions, of which the sampler takes the first with probability `sampler` and the trainer with `trainer`.

    The gradient of E[A] for the logit of the first is trainer (1 - trainer) (A_1 - A_2). Rows of the sampler give, with pi the
    trainer's probabilities and mu the sampler's, the sum over actions of mu A grad log pi, and with weights of
    min(pi, cap mu) A grad log pi, which is exact from a cap of max pi / mu on.
    """
    logit = torch.tensor(math.log(trainer / (1 - trainer)), dtype=torch.float64, requires_grad=True)
    logprobs = torch.stack([torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)])
    mu = torch.tensor([sampler, 1 - sampler], dtype=torch.float64)
    advantages = torch.tensor([1.0, -0.5], dtype=torch.float64)
    losses = losses_of(logprobs, logprobs.detach(), advantages, mu.log(), importance_cap=cap)
    (mu * losses.loss_N).sum().backward()
    pi = [trainer, 1 - trainer]
    slopes = [1 - trainer, -trainer]
    shares = mu.tolist()
    if cap is not None:
        shares = [min(own, cap * theirs) for own, theirs in zip(pi, shares, strict=True)]
    expected = sum(share * slope * value for share, slope, value in zip(shares, slopes, [1.0, -0.5], strict=True))
    assert -logit.grad.item() == pytest.approx(expected, rel=1e-12)
    exact = trainer * (1 - trainer) * 1.5
    is_exact = cap == 1e9 or trainer == sampler
    assert (-logit.grad.item() == pytest.approx(exact, rel=1e-9)) is is_exact


def test_rows_sums_are_of_each_rows_tokens():
    tokens = torch.tensor([-1.0, -2.0, -4.0, -8.0, -16.0, -32.0])
    assert row_sums(tokens, torch.tensor([2, 1, 3])).tolist() == [-3.0, -4.0, -56.0]


def test_k3_is_the_divergence_in_expectation_and_never_negative():
    torch.manual_seed(0)
    policy, reference = torch.log_softmax(torch.randn(2, 50, dtype=torch.float64), -1)
    estimates = k3(policy, reference)
    assert (estimates >= 0).all()
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * estimates).sum(), exact)
    assert k3(policy, policy).abs().max() == 0


def test_logprobs_and_entropies_of_logits():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [1.0, 1.0, 2.0]]))
    torch.testing.assert_close(token_logprobs(logits, torch.tensor([0, 2])), torch.log(torch.tensor([0.5, 0.5])))
    torch.testing.assert_close(token_entropies(logits), torch.tensor([1.5, 1.5]) * math.log(2))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.01, 2)), min_size=1, max_size=9
    ),
    st.sampled_from(["step", "token", "sequence"]),
)
def test_weights_of_an_update_sum_to_one(rows, aggregate):
    lengths, weights, shares = (torch.tensor(column) for column in zip(*rows, strict=True))
    total = (token_weights(aggregate, lengths, weights, shares) * lengths).sum().item()
    assert total == pytest.approx(1.0 if weights.sum() > 0 else 0.0)


def test_weights_in_closed_form():
    lengths, ones = torch.tensor([2, 6]), torch.ones(2)
    shares = torch.tensor([0.5, 1.0])
    assert token_weights("token", lengths, ones, shares).tolist() == pytest.approx([1 / 8, 1 / 8])
    assert token_weights("sequence", lengths, ones, shares).tolist() == pytest.approx([1 / 4, 1 / 12])
    assert token_weights("step", lengths, ones, shares).tolist() == pytest.approx([1 / 3 / 2, 2 / 3 / 6])
    half = torch.tensor([1.0, 0.5])
    assert token_weights("sequence", lengths, half, shares).tolist() == pytest.approx([1 / 3, 1 / 18])


def test_gap_statistics():
    sampler = torch.zeros(200)
    trainer = torch.zeros(200)
    trainer[7], trainer[8] = -0.5, 0.25
    gap = logprob_gap(trainer, sampler)
    assert gap["mean"] == pytest.approx(0.75 / 200)
    assert gap["max"] == 0.5
    assert gap["p99"] == 0.25
    assert gap["k3"] == pytest.approx((math.expm1(-0.5) + 0.5 + math.expm1(0.25) - 0.25) / 200)
    assert gap["tokens"] == 200


def test_the_reported_k3_is_finite():
    """Some servers say -9999 for a token that they think impossible."""
    assert logprob_gap(torch.tensor([-1.0]), torch.tensor([-9999.0]))["k3"] == 1e30
