"""One of two processes that share a model: every kind, in one go, and stopped and resumed.

    torchrun --nproc-per-node 2 sharded_worker.py FOLDER

FOLDER holds trees.jsonl, credit.jsonl, tied/, full/ and reference/; FOLDER/<kind>-whole and FOLDER/<kind>-parts are written.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from agentcli.records.training_settings import LoraSettings
from agentcli.training.loop.snapshots import Snapshots
from stopping import stopped, train
from torch.distributed.tensor import DTensor

KINDS = ("full", "tied", "lora")
UPDATES = 20
LORA = LoraSettings(rank=4, alpha=8)


def settings_of(kind):
    """20 updates; every fifth has two rows for four microbatches, so that some are empty. Recomputed log-probabilities come in
    15 chunks for two processes."""
    return {
        "rows_per_update": 7,
        "rows_per_microbatch": 2,
        "epochs": 4,
        "recompute_logprobs": True,
        "packing": "on" if kind == "full" else "off",
        "gradient_checkpointing": kind != "tied",
        "lora": LORA if kind == "lora" else LoraSettings(),
    }


def start_of(folder, kind):
    """What `train` of stopping.py takes for a rollout."""
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
    for kind in KINDS:
        rollout, given = start_of(folder, kind), {**settings_of(kind), "sharding": "fsdp"}
        statistics = train(rollout, folder / f"{kind}-whole", **given)
        stopped(train, rollout, folder / f"{kind}-parts", 11, **given)
        torch.distributed.barrier()
        assert train(rollout, folder / f"{kind}-parts", **given) == statistics
    assert len(checked) == len(KINDS) * (UPDATES + 11 + UPDATES - 9)
    assert torch.distributed.get_world_size() == 2


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
