"""Log-probabilities of rows, against those that the sampler kept, and by chunks of the head."""

import numpy as np
import pytest
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.records.training_settings import LoraSettings, TinySettings
from agentcli.training.loop import forward
from agentcli.training.loop.checkpoints import add_adapter
from agentcli.training.loop.forward import logprobs_look, response_logprobs, scoring, target_scores
from agentcli.training.loop.microbatches import Packing, row_batch, sort_key
from agentcli.training.policy_gradient.losses import entropies_look
from hypothesis import given, settings
from hypothesis import strategies as st
from seeing import seeing
from tiny_rollout import WORDS
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

KINDS = ("tied", "untied", "lora")
TOKEN = st.integers(5, 30)
ROW = st.tuples(st.lists(TOKEN, min_size=1, max_size=6), st.lists(TOKEN, min_size=1, max_size=6))
ROWS = st.lists(ROW, min_size=1, max_size=8)


@pytest.fixture(scope="module")
def models():
    """A model for each kind of head: one that is also the embedding, one of its own, and one that is frozen."""
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    made = {}
    for kind in KINDS:
        model = make_model(TinySettings(hidden=32, layers=1, heads=2, kv_heads=1, intermediate=48), tokenizer, 0)
        if kind == "untied":
            model.config.tie_word_embeddings = False
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() * 0.9)
        made[kind] = add_adapter(model, LoraSettings(rank=4, alpha=8)) if kind == "lora" else model
    return made


def scores_and_gradients(model, batch, temperatures, at_once, head_dtype=None, half=False):
    """Log-probabilities, looks and gradients with so many logits at once."""
    looks = [entropies_look(temperatures), logprobs_look(batch["targets_N"], None)]
    model.zero_grad()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "LOGITS_AT_ONCE", at_once)
        with forward.precision(torch.device("cpu"), half):
            logprobs, seen = target_scores(model, batch, temperatures, looks, head_dtype)
        (torch.linspace(-1, 1, len(logprobs)) * logprobs).mean().backward()
    gradients = {name: one.grad for name, one in model.named_parameters() if one.requires_grad}
    return torch.stack([logprobs.detach(), *seen]), gradients


def assert_same(one, other):
    torch.testing.assert_close(one[0], other[0], atol=1e-6, rtol=1e-6)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=1e-6, rtol=1e-6)


def test_a_model_that_sees_computes_all_logits_at_once():
    """A hook withholds its placeholders from the logits; log-probabilities are not logits."""
    model, *_ = seeing()
    batch = row_batch([([5, 6, 7], [8, 9, 3]), ([5, 6], [7, 3])], 0, None)
    whole, *chunked = (scores_and_gradients(model, batch, None, at_once) for at_once in (10**9, 64, 1))
    for one in chunked:
        assert_same(one, whole)


@pytest.mark.parametrize("name", ["logits_soft_cap", "output_multiplier", "unpadded_vocab_size"])
def test_what_changes_logits_after_the_head_is_not_computed_in_chunks(models, monkeypatch, name):
    model = models["untied"]
    assert forward.in_chunks(model, model.lm_head, 10**9)
    monkeypatch.setattr(model.config, name, 30, raising=False)
    assert not forward.in_chunks(model, model.lm_head, 10**9)


def test_padding_and_company_do_not_change_a_rows_logprobs(rollout):
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    steps = [step for tree in rollout.tree_list for step in tree.steps][:9]
    rows = [(prompt_ids(rollout.tokenizer, step.prompt), step.token_ids) for step in steps]
    batch = row_batch(rows, 0, None)
    with scoring(model):
        (together,) = response_logprobs(model, batch, [None], torch.device("cpu"), None)
    np.testing.assert_allclose(together, [value for step in steps for value in step.logprobs], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, at_once=st.integers(1, 400), packed=st.booleans(), cool=st.booleans())
def test_chunks_give_what_all_logits_give(models, kind, rows, at_once, packed, cool):
    batch = row_batch(sorted(rows, key=sort_key), 0, Packing(0.0) if packed else None)
    temperatures = torch.linspace(0.4, 2, len(batch["targets_N"])) if cool else None
    whole = scores_and_gradients(models[kind], batch, temperatures, 2**26)
    assert_same(scores_and_gradients(models[kind], batch, temperatures, at_once), whole)


class Largest(TorchDispatchMode):
    """Keeps the most elements of a tensor over the vocabulary that an operation returned."""

    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary, self.elements = vocabulary, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        for one in results:
            if isinstance(one, torch.Tensor) and one.shape[-1:] == (self.vocabulary,):
                self.elements = max(self.elements, one.numel())
        return result


def test_no_tensor_holds_all_logits(models):
    model = models["untied"]
    batch = row_batch([([5, 6], list(range(5, 30)) * 4)] * 8, 0, None)
    vocabulary, width = model.lm_head.weight.shape
    weights, logits = vocabulary * width, len(batch["targets_N"]) * vocabulary
    assert logits > 20 * weights
    for at_once, expected in ((2**26, logits), (weights, weights)):
        with Largest(vocabulary) as largest:
            scores_and_gradients(model, batch, torch.full(batch["targets_N"].shape, 0.5), at_once)
        assert largest.elements == expected


def test_a_head_whose_logits_are_changed_is_run_whole():
    config = Gemma2Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16
    )
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight *= 1000  # so that the caps are reached
    batch = row_batch([([5, 6, 7], [8, 9]), ([5], [6, 7, 8])], 0, None)
    whole = scores_and_gradients(model, batch, None, 2**26)
    assert whole[0].min() > -2 * config.final_logit_softcapping - 10
    assert_same(scores_and_gradients(model, batch, None, 1), whole)


@pytest.mark.parametrize("packed", [False, True])
def test_a_head_in_float32_under_autocast(models, packed):
    """As if hidden states in bfloat16 were taken from the model and multiplied outside."""
    model = models["untied"]
    rows = [([5, 6, 7], [8, 9]), ([5, 6], [6, 7, 8])]
    batch = row_batch(sorted(rows, key=sort_key), 0, Packing(0.0) if packed else None)
    kept = []
    hook = model.lm_head.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    coarse, _ = scores_and_gradients(model, batch, None, 2**26, half=True)
    fine = scores_and_gradients(model, batch, None, 2**26, torch.float32, half=True)
    chunked = scores_and_gradients(model, batch, None, 1, torch.float32, half=True)
    # Further down, gradients are rounded to bfloat16.
    assert_same(*((scores, {"head": found["lm_head.weight"]}) for scores, found in (chunked, fine)))
    hook.remove()
    assert (fine[0] - coarse).abs().max() > 1e-4
    logits = kept[1].float() @ model.lm_head.weight.T
    chosen = forward._chosen(batch, logits).log_softmax(-1)
    expected = chosen.gather(1, batch["targets_N"][:, None])[:, 0]
    torch.testing.assert_close(fine[0][0], expected, atol=1e-6, rtol=1e-6)
