"""One of two processes that share a model: every training of every kind, in one go, and stopped and resumed.

    torchrun --nproc-per-node 2 sharded_worker.py FOLDER

FOLDER holds trees.jsonl, credit.jsonl, tied/ and full/; FOLDER/<training>-<kind>-whole and -parts are written.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from agentcli.records.training_settings import LoraSettings
from agentcli.training.loop import forward
from agentcli.training.loop.snapshots import Snapshots
from stopping import sft, stopped, train
from torch.distributed.tensor import DTensor

KINDS = ("full", "tied", "lora", "half")
WHOLE = forward.LOGITS_AT_ONCE
CHUNKED = 500
"""Logits at once for one of the kinds, which therefore runs its head in chunks of a few tokens."""
TRAININGS = {"train": train, "sft": sft}
UPDATES = 20
LORA = LoraSettings(rank=4, alpha=8)


def settings_of(training, kind, model):
    """20 updates. In `train` every fifth has two rows for four microbatches, so that some are empty, and recomputed
    log-probabilities come in 15 chunks for two processes. One kind has another model as its reference."""
    shared = {
        "packing": "on" if kind == "full" else "off",
        "gradient_checkpointing": kind != "tied",
        "lora": LORA if kind == "lora" else LoraSettings(),
        "bf16": kind == "half",
    }
    if training == "sft":
        return {**shared, "model": str(model), "updates": UPDATES, "samples_per_update": 12}
    reference = str(model.parent / "tied") if kind == "full" else None
    return {
        **shared,
        "reference": reference,
        "rows_per_update": 7,
        "rows_per_microbatch": 2,
        "epochs": 4,
        "recompute_logprobs": True,
    }


def start_of(folder, kind):
    """What `train` and `sft` of stopping.py take for a rollout."""
    model = folder / ("full" if kind == "full" else "tied")
    return SimpleNamespace(trees=folder / "trees.jsonl", credit=folder / "credit.jsonl", model=model)


def main(folder):
    checked = []
    real_save = Snapshots.save

    def save(self, *given):
        parameters = dict(self._trained.model.named_parameters())
        plain = [name for name, parameter in parameters.items() if not isinstance(parameter, DTensor)]
        assert parameters
        assert not plain, plain
        checked.append(len(parameters))
        real_save(self, *given)

    Snapshots.save = save
    gathered = set()
    real_gather = torch.distributed.all_gather_single

    def gather(output_tensor, *given, **more):
        gathered.add(output_tensor.dtype)
        return real_gather(output_tensor, *given, **more)

    torch.distributed.all_gather_single = gather
    for training, call in TRAININGS.items():
        for kind in KINDS:
            gathered.clear()
            forward.LOGITS_AT_ONCE = CHUNKED if kind == "tied" else WHOLE
            rollout = start_of(folder, kind)
            given = {**settings_of(training, kind, rollout.model), "sharding": "fsdp"}
            statistics = call(rollout, folder / f"{training}-{kind}-whole", **given)
            stopped(call, rollout, folder / f"{training}-{kind}-parts", 11, **given)
            torch.distributed.barrier()
            assert call(rollout, folder / f"{training}-{kind}-parts", **given) == statistics
            assert (torch.bfloat16 in gathered) is (kind == "half"), gathered
    assert len(checked) == len(TRAININGS) * len(KINDS) * (UPDATES + 11 + UPDATES - 9)
    assert torch.distributed.get_world_size() == 2


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
