"""Rows in one sequence are what they are alone: log-probabilities, gradients, and a whole training."""

import random

import msgspec
import pytest
import torch
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.prompts.protocol import Message
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings, TinySettings, TrainSettings
from agentcli.training.loop import microbatches
from agentcli.training.loop.checkpoints import add_adapter
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import forest_mask, pad_rows, predicted_logits, token_logprobs
from agentcli.training.loop.job import Job
from agentcli.training.loop.microbatches import (
    LEAST_GAIN,
    LONGEST,
    Packing,
    obstacle_of,
    pack_rows,
    rounding_of,
    row_tokens,
    shared_length,
    sort_key,
)
from agentcli.training.metrics import TrainMetrics
from agentcli.training.policy_gradient.batches import Tokens, check_packed, packed_as_set, plan_updates
from agentcli.training.policy_gradient.training import PolicyTraining
from agentcli.training.steps import Row
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal import refused
from rounded import rounded
from safetensors.torch import load_file
from tiny_rollout import WORDS, write

FREE = Packing(0.0)
"""Pairs cost nothing, so that whatever shares a token is packed."""
KINDS = ("full", "tied", "lora")
TOKEN = st.integers(5, 8)
ROW = st.tuples(st.lists(TOKEN, min_size=1, max_size=9), st.lists(TOKEN, min_size=1, max_size=6))
ROWS = st.lists(ROW, min_size=1, max_size=9)
"""Four tokens only, so that rows share prefixes, are prefixes of each other, and are equal."""


@pytest.fixture(scope="module")
def models():
    """A model for each kind, in which every parameter that is trained matters."""
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    made = {}
    for kind in KINDS:
        model = make_model(TinySettings(hidden=32, layers=2, heads=2, kv_heads=1, intermediate=48), tokenizer, 0)
        if kind != "tied":
            model.config.tie_word_embeddings = False
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() * 0.9)
        if kind == "lora":
            model = add_adapter(model, LoraSettings(rank=4, alpha=8))
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.1)
        made[kind] = model
    return made


def packed(rows, packing=FREE):
    return pack_rows(sorted(rows, key=sort_key), packing, 0)


def padded(rows):
    ids_BT, response_BT = pad_rows(sorted(rows, key=sort_key), 0)
    return {"ids_BT": ids_BT, "response_BT": response_BT, "targets_N": ids_BT[response_BT]}


def logprobs_and_gradients(model, batch):
    model.zero_grad()
    logprobs = token_logprobs(predicted_logits(model, batch), batch["targets_N"])
    weights = torch.linspace(-1, 1, len(logprobs))
    (weights * logprobs).sum().backward()
    return logprobs.detach(), {name: one.grad for name, one in model.named_parameters() if one.requires_grad}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_log_probabilities_and_gradients_are_those_of_the_rows_alone(models, kind, rows):
    apart, gradients_apart = logprobs_and_gradients(models[kind], padded(rows))
    together, gradients = logprobs_and_gradients(models[kind], packed(rows))
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)
    assert gradients.keys() == gradients_apart.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_apart[name], atol=1e-5, rtol=1e-5)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS, pair_cost=st.sampled_from([0.0, 0.02, 10.0]))
def test_a_token_sees_its_row_and_nothing_else(rows, pair_cost):
    """Read from the mask alone: the tokens that predict a response are those of its row up to there."""
    ordered = sorted(rows, key=sort_key)
    batch = packed(rows, Packing(pair_cost))
    sequences, longest = batch["ids_BT"].shape
    # Without ends, every sequence is one path, which a causal model sees without a mask.
    paths = torch.full((sequences, longest), longest)
    seen_BTT = forest_mask(batch.get("ends_BT", paths))[:, 0]
    positions_BT = batch.get("positions_BT", torch.arange(longest).expand(sequences, -1))
    places = iter(batch["places_N"].tolist())
    for prompt, response in ordered:
        for done in range(len(response)):
            sequence, place = divmod(next(places), longest)
            keys = seen_BTT[sequence, place].nonzero().squeeze(1)
            assert batch["ids_BT"][sequence, keys].tolist() == [*prompt, *response[:done]]
            assert positions_BT[sequence, keys].tolist() == list(range(len(keys)))


@settings(max_examples=50, deadline=None)
@given(rows=ROWS)
def test_no_prefix_is_run_twice(rows):
    """As many tokens as a set of all prefixes has, where pairs cost nothing."""
    prefixes = {tuple(row_tokens(row)[:end]) for row in rows for end in range(1, len(row_tokens(row)) + 1)}
    assert packed(rows)["run_1"].item() == len(prefixes)


ADDED = st.lists(TOKEN, min_size=1, max_size=4)
TURNS = st.lists(st.tuples(st.integers(0, 99), ADDED, ADDED), min_size=1, max_size=8)
"""Of each step: which step before it continues, what was added, and what was answered."""


def conversations(turns):
    """The rows of a tree of conversations that grow: a prompt is the parent's, its response, and what was added."""
    rows = []
    for number, (parent, added, response) in enumerate(turns):
        prompt, said = rows[parent % number] if number else ([5], [])
        rows.append(([*prompt, *said, *added], response))
    return rows


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(turns=TURNS)
def test_a_tree_of_conversations_is_one_sequence_with_the_gradients_of_its_steps(models, kind, turns):
    rows = conversations(turns)
    apart, gradients_apart = logprobs_and_gradients(models[kind], padded(rows))
    together, gradients = logprobs_and_gradients(models[kind], packed(rows))
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_apart[name], atol=1e-5, rtol=1e-5)
    assert packed(rows)["ids_BT"].shape[0] == 1


def test_one_trajectory_of_a_conversation_needs_no_mask():
    rows = conversations([(0, [5], [6, 7]), (0, [8], [6]), (1, [7], [7, 5])])
    assert "ends_BT" not in packed(rows)
    assert "ends_BT" in packed([*rows, ([*rows[0][0], 8, 8], [5])])


def test_a_conversation_longer_than_any_shared_sequence_stays_one():
    """It makes no longer sequence than its last row is alone."""
    rows = conversations([(max(0, number - 1), [5] * 700, [6] * 30) for number in range(12)])
    tokens = [row_tokens(row) for row in sorted(rows, key=sort_key)]
    (bundle,) = Packing(0.002).bundles(tokens)
    assert LONGEST < bundle.length == len(tokens[-1])


def test_sequences_stay_short_and_pairs_are_weighed():
    prompt = list(range(100))
    rows = [row_tokens((prompt, [number] * 101)) for number in range(40)]
    assert [len(bundle.pieces) for bundle in FREE.bundles(rows)] == [39, 1]
    assert all(bundle.length <= LONGEST for bundle in FREE.bundles(rows))
    assert len(Packing(1.0).bundles(rows)) == 40
    assert shared_length(rows[0], rows[1]) == 100
    assert len(FREE.bundles([row_tokens((list(range(LONGEST + 5)), [1]))])) == 1


def plan_of(rows, **given):
    """A plan over rows of (tree, prompt, response)."""
    made = [
        Row(f"row {number}", Message(("",)), response, [-1.0] * len(response), 1.0, 1.0, 1.0, tree=tree)
        for number, (tree, _, response) in enumerate(rows)
    ]
    offsets = [0]
    for _, _, response in rows:
        offsets.append(offsets[-1] + len(response))
    tokens = Tokens([one for _, one, _ in rows], [one for _, _, one in rows], offsets, torch.zeros(offsets[-1]))
    chosen = TrainSettings(aggregate="token", **given)
    return plan_updates(made, tokens, chosen, 0, Processes(0, 1)), chosen


SIBLINGS = [(tree, [tree + 5] * 40, [number + 5, 9]) for tree in range(4) for number in range(6)]
STRANGERS = [(number, [number + 5] * 40, [9, 9]) for number in range(24)]


def unpacked_because(plan):
    """The reason that the manifest has of a plan whose rows have a sequence each."""
    statistics = plan.choice.statistics()
    assert statistics.pop("packed") is (plan.packing is not None) is False
    (reason,) = statistics.values()
    return reason


def test_auto_packs_where_it_saves(models):
    plan, chosen = plan_of(SIBLINGS)
    assert packed_as_set(plan, chosen, models["full"]).packing is not None
    plan, chosen = plan_of(STRANGERS)
    assert str(LEAST_GAIN) in unpacked_because(packed_as_set(plan, chosen, models["full"]))
    plan, chosen = plan_of(SIBLINGS, packing="off")
    assert "train.packing" in unpacked_because(packed_as_set(plan, chosen, models["full"]))
    plan, chosen = plan_of(STRANGERS, packing="on")
    assert packed_as_set(plan, chosen, models["full"]).packing is not None


def test_an_update_keeps_its_rows_and_weights(models):
    plan, chosen = plan_of(SIBLINGS, rows_per_update=10, rows_per_microbatch=4, packing="on")
    packed_plan = packed_as_set(plan, chosen, models["full"])
    for before, after in zip(plan.updates, packed_plan.updates, strict=True):
        assert (after.rows, after.weights) == (before.rows, before.weights)
        assert sorted(row for rows in after.microbatches for row in rows) == sorted(before.weights)
        assert len(after.microbatches) == len(before.microbatches)
        assert max(map(len, after.microbatches)) <= 4


def test_whole_trees_share_updates(models):
    plan, _ = plan_of(SIBLINGS, rows_per_update=6, order="trees", epochs=2)
    trees = [{SIBLINGS[row][0] for row in update.rows} for update in plan.updates]
    assert [len(one) for one in trees] == [1] * 8
    assert trees[:4] != trees[4:]
    assert set.union(*trees[:4]) == set.union(*trees[4:]) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("_attn_implementation", "eager", "eager"),
        ("layer_types", ["full_attention", "sliding_attention"], "sliding"),
        ("sliding_window", 16, "window"),
    ],
)
def test_a_model_that_cannot_be_packed_is_left_alone_or_refused(models, monkeypatch, name, value, word):
    model = models["tied"]
    monkeypatch.setattr(model.config, name, value, raising=False)
    assert word in obstacle_of(model)
    plan, chosen = plan_of(SIBLINGS)
    assert word in unpacked_because(packed_as_set(plan, chosen, model))
    plan, chosen = plan_of(SIBLINGS, packing="on")
    refused(lambda: packed_as_set(plan, chosen, model), names="train.packing", remedy="train.packing=auto")


class Forgetful(torch.nn.Module):
    """Calls the model without the mask that it is given."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def get_output_embeddings(self):
        return self.model.get_output_embeddings()

    def forward(self, attention_mask=None, **inputs):
        return self.model(**inputs)


def test_a_model_that_ignores_the_mask_is_refused(models):
    plan, chosen = plan_of(SIBLINGS, packing="on")
    plan = packed_as_set(plan, chosen, models["full"])
    check_packed(plan, models["full"], 0, torch.device("cpu"))
    forgetful = Forgetful(models["full"])
    refused(lambda: check_packed(plan, forgetful, 0, torch.device("cpu")), 1, remedy="train.packing=off")


def test_layers_in_bfloat16_may_differ_by_their_rounding():
    """Under QLoRA single tokens differ by more than float32 allows, without any fault; a missing mask is still seen."""
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    # Of a smaller model no token differs on some processors.
    shape = TinySettings(hidden=128, layers=24, heads=4, kv_heads=2, intermediate=256)
    model = rounded(make_model(shape, tokenizer, 0))
    draw = random.Random(0)
    prompt, *responses = [[draw.randint(5, len(tokenizer) - 1) for _ in range(length)] for length in (40, *[12] * 8)]
    rows = sorted(((prompt, response) for response in responses), key=sort_key)
    cpu = torch.device("cpu")
    assert rounding_of(model, cpu) == torch.finfo(torch.bfloat16).eps
    with pytest.MonkeyPatch.context() as patch:
        # As if it computed in float32.
        patch.setattr(microbatches, "rounding_of", lambda model, device: 0.0)
        refused(lambda: microbatches.check_packed("sft.packing", FREE, model, rows, 0, cpu), 1)
    microbatches.check_packed("sft.packing", FREE, model, rows, 0, cpu)
    forgetful = Forgetful(model)
    refused(
        lambda: microbatches.check_packed("sft.packing", FREE, forgetful, rows, 0, cpu), 1, remedy="sft.packing=off"
    )


def test_the_coarsest_rounding_decides(models, monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    model = models["full"]
    assert rounding_of(model, cpu) == rounding_of(model, cuda) == torch.finfo(torch.float32).eps
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    assert rounding_of(model, cpu) == torch.finfo(torch.float32).eps
    assert rounding_of(model, cuda) == torch.finfo(torch.float16).eps


@pytest.mark.parametrize("lora", [0, 4])
def test_a_packed_training_is_a_plain_one(rollout, tmp_path, lora):
    """With a penalty, recomputed log-probabilities and siblings that share their prompts."""
    trees = [msgspec.convert(msgspec.to_builtins(tree), type(tree)) for tree in rollout.tree_list]
    for tree in trees:
        for step in tree.steps:
            step.prompt = tree.steps[step.parent or 0].prompt
    shared = write(tmp_path / "trees.jsonl", trees)
    left = {}
    for setting in ("on", "off"):
        chosen = TrainSettings(
            aggregate="step",
            learning_rate=1e-3,
            beta=0.1,
            recompute_logprobs=True,
            rows_per_update=9,
            rows_per_microbatch=4,
            epochs=2,
            packing=setting,
            lora=LoraSettings(rank=lora, alpha=8),
        )
        metrics = tmp_path / f"{setting}.jsonl"
        job = Job(str(rollout.model), tmp_path / setting, chosen, 0, metrics)
        statistics = PolicyTraining(job).train(shared, rollout.credit)
        lines = list(read_records(metrics, TrainMetrics))
        weights = load_file(next((tmp_path / setting).glob("*.safetensors")))
        left[setting] = statistics, lines, weights
    for one, other in zip(left["on"][1], left["off"][1], strict=True):
        for name in ("loss", "grad_norm", "kl", "entropy", "ratio_max", "gap_max", "rows", "tokens", "tokens_read"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-5, rel=1e-4), name
        assert one.tokens_saved > 0 == other.tokens_saved
    for name, value in left["on"][2].items():
        torch.testing.assert_close(value, left["off"][2][name], atol=5e-5, rtol=0)
    assert [left[setting][0]["packed"] for setting in ("on", "off")] == [True, False]
    assert left["on"][0]["tokens_saved"] == sum(line.tokens_saved for line in left["on"][1])
