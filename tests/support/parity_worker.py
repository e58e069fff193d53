"""Every parity case on both trainers, and dpo, in this process or as one of several that torchrun started.

    torchrun --nproc-per-node 2 parity_worker.py FOLDER 2

FOLDER holds trees.jsonl, cool.jsonl (the same at temperature 0.4), credit.jsonl, pairs.jsonl, model/, reference/ and adapter/;
FOLDER/<processes>-<rank>.json is written.
"""

import json
import os
import sys
from pathlib import Path

import msgspec
import numpy as np
import torch
from agentcli.records.files import derive_seed, read_records
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.records.types import Tree
from agentcli.training.loop.distributed import Processes, announced_processes
from agentcli.training.loop.job import Job
from agentcli.training.metrics import DpoMetrics, TrainMetrics
from agentcli.training.policy_gradient.training import PolicyTraining
from agentcli.training.preference import PreferenceTraining
from parity_trl import train_trl

SEED = 3
RANK = 4
COOL = 0.4
CASES = [(aggregate, kind) for kind in ("full", "lora", "cool") for aggregate in ("token", "step", "sequence")]
CASES += [("token", "higher"), ("token", "dual"), ("sequence", "gspo"), ("sequence", "constant"), ("token", "weighted")]
SWITCHES = {
    "higher": {"clip_high": 0.4},
    "dual": {"dual_clip": 1.3},
    "gspo": {"ratio": "sequence", "clip": 0.05, "clip_high": 0.08},
    "constant": {"tokens_per_response": 3},
    "weighted": {"importance_cap": 1.1},
}
"""What the settings of some kinds have beside COMMON."""
COMMON = {
    "learning_rate": 2e-3,
    "clip": 0.2,
    "beta": 0.3,
    "epochs": 2,
    "rows_per_update": 10,
    "rows_per_microbatch": 2,
    "adam_betas": (0.9, 0.98),
    "weight_decay": 0.1,
    "max_grad_norm": 0.2,
}


def run_cases(folder, processes, rank=0):
    """{case: {"ours": lines, "trl": lines}, "dpo": lines}, a line per update; of a case: loss, grad_norm, kl, clip."""
    world = announced_processes()
    assert world == Processes(rank, processes)
    found = {}
    for aggregate, kind in CASES:
        lora = LoraSettings(rank=RANK, alpha=8) if kind == "lora" else LoraSettings()
        settings = TrainSettings(aggregate=aggregate, lora=lora, **(COMMON | SWITCHES.get(kind, {})))
        found[f"{aggregate} {kind}"] = {
            "ours": ours(folder, settings, kind, f"{aggregate}-{kind}-{processes}"),
            "trl": theirs(folder, settings, kind, world),
        }
    found["dpo"] = preferences(folder, processes)
    if processes > 1:
        assert torch.distributed.get_world_size() == processes
    return found


def ours(folder, settings, kind, name):
    out = folder / name
    # The base is named: an adapter that goes on is its own reference otherwise.
    start, reference = ("adapter", "model") if kind == "lora" else ("model", "reference")
    job = Job(
        str(folder / start),
        out,
        settings,
        SEED,
        metrics := out.with_suffix(".jsonl"),
        reference=str(folder / reference),
    )
    PolicyTraining(job).train(trees_of(folder, kind), folder / "credit.jsonl")
    return [
        {"loss": line.loss, "grad_norm": line.grad_norm, "kl": line.kl, "clip": line.clip_fraction}
        for line in read_records(metrics, TrainMetrics)
    ]


def trees_of(folder, kind):
    return folder / ("cool.jsonl" if kind == "cool" else "trees.jsonl")


def theirs(folder, settings, kind, world):
    trees, credit, model = trees_of(folder, kind), folder / "credit.jsonl", folder / "model"
    adapter, reference = (folder / "adapter", model) if kind == "lora" else (None, folder / "reference")
    updates = membership(sum(len(tree.steps) for tree in read_records(trees, Tree)), settings)
    temperature = COOL if kind == "cool" else 1.0
    lines = train_trl(trees, credit, model, adapter, reference, settings, updates, 2 // world.size, temperature)
    return [
        {
            "loss": line["loss"],
            "grad_norm": line["grad_norm"],
            "kl": line["kl"],
            "clip": line["clip_ratio/region_mean"],
        }
        for line in lines
    ]


def preferences(folder, processes):
    """Updates of 3, 3 and 2 pairs: of two processes, the second has nothing to do in a third of the microbatches."""
    settings = TrainSettings(objective="dpo", options={"beta": 0.5}, **{**COMMON, "rows_per_update": 3})
    metrics = folder / f"dpo-{processes}.jsonl"
    job = Job(
        str(folder / "model"),
        folder / f"dpo-{processes}",
        settings,
        SEED,
        metrics,
        reference=str(folder / "reference"),
    )
    PreferenceTraining(job).train(folder / "pairs.jsonl")
    return [msgspec.structs.asdict(line) for line in read_records(metrics, DpoMetrics)]


def membership(rows, settings):
    """Which rows are in which update; TRL is told this, and nothing else of our plan."""
    orders = [
        np.random.default_rng(derive_seed("train rows", SEED, epoch)).permutation(rows).tolist()
        for epoch in range(settings.epochs)
    ]
    size = settings.rows_per_update
    return [order[start : start + size] for order in orders for start in range(0, rows, size)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    given, expected = Path(sys.argv[1]), int(sys.argv[2])
    here = int(os.environ["RANK"])
    (given / f"{expected}-{here}.json").write_text(json.dumps(run_cases(given, expected, here)))
    torch.distributed.destroy_process_group()
