"""Two processes that share a model (FSDP2) leave what one leaves, and resume with the same bits."""

from pathlib import Path

import pytest
import torch
from agentcli.records.files import read_records
from agentcli.records.settings import Settings
from agentcli.records.training_settings import LoraSettings, SftSettings, TrainSettings
from agentcli.stages.train import checked_objective
from agentcli.training.loop.checkpoints import load_trainable
from agentcli.training.loop.distributed import check_shared
from agentcli.training.metrics import SftMetrics, TrainMetrics
from agentcli.training.objectives import check_sharding
from command_line import agentcli
from processes import BY_TWO, well_ended
from refusal import refused
from safetensors.torch import load_file
from sharded_worker import KINDS, TRAININGS, UPDATES, settings_of, start_of
from stopping import left
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig

SHARDED = TrainSettings(sharding="fsdp")
TOLERANCES = {
    "train": (TrainMetrics, {"loss": 1e-6, "kl": 1e-6, "grad_norm": 1e-5, "gap_max": 1e-5, "rows": 0}),
    "sft": (SftMetrics, {"loss": 1e-5, "grad_norm": 1e-4, "tokens": 0}),
}
"""By training: a line of its metrics, and how far its figures may lie apart. Those of sft are about ten times as large."""
EACH = [(training, kind) for training in TRAININGS for kind in KINDS]


@pytest.fixture(scope="module")
def folder(rollout, tmp_path_factory):
    """What the worker left, and what one process leaves in FOLDER/<training>-<kind>-alone."""
    folder = tmp_path_factory.mktemp("sharded")
    for name in ("trees.jsonl", "credit.jsonl"):
        (folder / name).symlink_to(rollout.folder / name)
    (folder / "tied").symlink_to(rollout.model)
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    assert model.config.tie_word_embeddings
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(0.9 * model.lm_head.weight.detach())
    # As hubs have models: it is read in bfloat16, and trained in float32.
    model.to(torch.bfloat16).save_pretrained(folder / "full")
    rollout.tokenizer.save_pretrained(folder / "full")
    worker = Path(__file__).parents[2] / "support" / "sharded_worker.py"
    well_ended(*BY_TWO, worker, folder)
    for training, kind in EACH:
        start = start_of(folder, kind)
        TRAININGS[training](start, folder / f"{training}-{kind}-alone", **settings_of(training, kind, start.model))
    return folder


def weights_of(run):
    return load_file(next((run / "checkpoint").glob("*.safetensors")))


@pytest.mark.slow
@pytest.mark.parametrize(("training", "kind"), [each for each in EACH if "half" not in each])
def test_two_that_share_a_model_are_one(folder, training, kind):
    line, tolerances = TOLERANCES[training]
    alone, together = (
        list(read_records(folder / f"{training}-{kind}-{name}" / "metrics.jsonl", line)) for name in ("alone", "whole")
    )
    assert len(together) == UPDATES
    for name, tolerance in tolerances.items():
        assert [getattr(one, name) for one in together] == pytest.approx(
            [getattr(one, name) for one in alone], abs=tolerance, rel=0
        ), name
    one, two = (weights_of(folder / f"{training}-{kind}-{name}") for name in ("alone", "whole"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("training", TRAININGS)
def test_two_that_share_a_model_in_bfloat16_begin_alike(folder, training):
    """Only the weights of norms are rounded otherwise; twenty updates on, roundings have led elsewhere."""
    line, tolerances = TOLERANCES[training]
    alone, together = (
        next(iter(read_records(folder / f"{training}-half-{name}" / "metrics.jsonl", line)))
        for name in ("alone", "whole")
    )
    for name, tolerance in tolerances.items():
        assert getattr(together, name) == pytest.approx(getattr(alone, name), abs=1000 * tolerance, rel=0), name


@pytest.mark.slow
@pytest.mark.parametrize(("training", "kind"), EACH)
def test_every_weight_is_trained(folder, training, kind):
    after = weights_of(folder / f"{training}-{kind}-whole")
    if kind == "lora":
        assert all(value.abs().max() > 0 for value in after.values())
        return
    before = load_file(start_of(folder, kind).model / "model.safetensors")
    assert before.keys() == after.keys()
    assert not [name for name, value in before.items() if torch.equal(value.float(), after[name])]


@pytest.mark.slow
@pytest.mark.parametrize(("training", "kind"), EACH)
def test_a_stopped_one_ends_with_the_same_bits(folder, training, kind):
    assert left(folder / f"{training}-{kind}-parts") == left(folder / f"{training}-{kind}-whole")


@pytest.mark.slow
@pytest.mark.parametrize(("training", "kind"), EACH)
def test_the_checkpoint_is_a_plain_directory(folder, training, kind):
    alone, together = (folder / f"{training}-{kind}-{name}" / "checkpoint" for name in ("alone", "whole"))
    assert sorted(path.name for path in together.iterdir()) == sorted(path.name for path in alone.iterdir())
    for config in alone.glob("*config.json"):
        assert (together / config.name).read_text() == config.read_text(), config.name


def test_a_model_that_will_be_shared_is_read_as_its_file_has_it(tmp_path):
    """Its buffers are those of float32: this architecture rounds one, 8.944 to 8.938, like its weights."""
    sizes = {"vocab_size": 64, "hidden_size": 80, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    torch.manual_seed(0)
    Gemma3ForCausalLM(Gemma3TextConfig(**sizes, **heads)).to(torch.bfloat16).save_pretrained(tmp_path)
    whole, stored = (load_trainable(str(tmp_path), LoraSettings(), sharding) for sharding in ("none", "fsdp"))
    assert {parameter.dtype for parameter in stored.parameters()} == {torch.bfloat16}
    for (name, one), (_, other) in zip(whole.named_parameters(), stored.named_parameters(), strict=True):
        assert torch.equal(one, other.float()), name
    buffers = dict(stored.named_buffers())
    assert buffers["model.embed_tokens.embed_scale"].item() == pytest.approx(80**0.5, abs=1e-6)
    for name, buffer in whole.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
        assert buffer.dtype == buffers[name].dtype, name


def test_what_cannot_be_shared_is_refused(rollout):
    refused(lambda: check_sharding("train", SHARDED, 1), names="train.sharding", remedy="torchrun")
    bits = SftSettings(sharding="fsdp", lora=LoraSettings(rank=4, bits=4))
    refused(lambda: check_sharding("sft", bits, 2), names="sft.sharding", remedy="sft.lora.bits=32")
    ppo = Settings(train=TrainSettings(sharding="fsdp", objective="ppo"))
    refused(lambda: checked_objective(ppo), names=("train.sharding", "ppo"), remedy="train.sharding=none")
    model = load_trainable(str(rollout.model), LoraSettings())
    refused(lambda: check_shared(model), 1, names="embed_tokens", remedy="train.sharding=none")


@pytest.mark.parametrize(
    "words",
    [
        ("demos", "--preset", "quickstart"),
        ("rollout", "--preset", "quickstart", "--model", "model"),
        ("run", "--preset", "quickstart", "--model", "model"),
        ("eval", "--preset", "quickstart", "--model", "model", "-o", "new"),
    ],
)
def test_trees_do_not_grow_in_several_processes(empty_folder, monkeypatch, words):
    monkeypatch.setenv("WORLD_SIZE", "2")
    answer = agentcli(*words, "--dry-run")
    refused(answer, names="2 processes", remedy="without torchrun")


def test_a_dry_run_refuses_one_process(empty_folder):
    (empty_folder / "demos").mkdir()
    (empty_folder / "demos" / "trees.jsonl").touch()
    sft = agentcli("sft", "demos", "--model", "tiny", "--set", "sft.sharding=fsdp", "--dry-run")
    refused(sft, names="sft.sharding", remedy="torchrun")
