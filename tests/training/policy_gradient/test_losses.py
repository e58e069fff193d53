"""The loss against arithmetic written down a second time, without tensors."""

import math

import numpy as np
import pytest
import torch
from agentcli.training.loop.forward import token_logprobs
from agentcli.training.policy_gradient.losses import k3, logprob_gap, token_entropies, token_losses, token_weights
from hypothesis import given, settings
from hypothesis import strategies as st


def by_hand(logprob, old, advantage, clip, reference, beta):
    ratio = math.exp(logprob - old)
    clipped = min(max(ratio, 1 - clip), 1 + clip)
    surrogate = min(ratio * advantage, clipped * advantage)
    kl = math.exp(reference - logprob) - (reference - logprob) - 1
    return -surrogate + beta * kl


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 0), st.floats(-5, 0), st.floats(-3, 3), st.floats(-5, 0)), min_size=1, max_size=8),
    st.sampled_from([0.1, 0.2]),
    st.sampled_from([0.0, 0.01, 1.0]),
)
def test_token_losses_equal_the_formula(tokens, clip, beta):
    logprobs, old, advantages, reference = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True)
    )
    losses = token_losses(logprobs, old, advantages, clip, reference, beta)
    expected = [by_hand(lp, o, a, clip, ref, beta) for lp, o, a, ref in tokens]
    np.testing.assert_allclose(losses.loss_N.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_clipped_tokens_are_exactly_those_without_a_gradient():
    logprobs = torch.tensor([0.5, 0.5, -0.5, -0.5, 0.1, 0.5], requires_grad=True)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    losses = token_losses(logprobs, torch.zeros(6), advantages, 0.2, None, 0.0)
    losses.loss_N.sum().backward()
    assert losses.clipped_N.tolist() == [True, False, False, True, False, False]
    assert (logprobs.grad == 0).tolist() == [True, False, False, True, False, True]


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
