"""One of several processes that torchrun started: trains LoRA with dropout, without and with a stop.

    torchrun --nproc-per-node 2 resume_worker.py FOLDER

FOLDER holds trees.jsonl, credit.jsonl and model/; FOLDER/whole and FOLDER/parts are written.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from agentcli.records.training_settings import LoraSettings
from agentcli.training.loop.snapshots import Snapshots
from stopping import sft, stopped, train

torch.set_num_threads(1)
real_save = Snapshots.save


def save(self, *given):
    """The number of draws differs between processes, so that each must get back a random state of its own."""
    torch.rand(8 * torch.distributed.get_rank())
    real_save(self, *given)


Snapshots.save = save
folder = Path(sys.argv[1])
rollout = SimpleNamespace(trees=folder / "trees.jsonl", credit=folder / "credit.jsonl", model=folder / "model")
lora = {"lora": LoraSettings(rank=4, alpha=8, dropout=0.3)}
for call, given in ((train, lora), (sft, {**lora, "model": str(rollout.model), "samples_per_update": 12})):
    whole, parts = (folder / f"{call.__name__}-{name}" for name in ("whole", "parts"))
    statistics = call(rollout, whole, **given)
    assert torch.distributed.get_world_size() == 2
    stopped(call, rollout, parts, 5, **given)
    torch.distributed.barrier()
    assert call(rollout, parts, **given) == statistics
torch.distributed.destroy_process_group()
