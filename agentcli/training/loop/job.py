"""What either objective of `train` is asked for, and what both do with it: the optimiser, the recorded loop, the saving.

`policy_gradient.py` and `dpo.py` hold what differs: rows or pairs, their plan, their loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agentcli.records.settings import TrackingSettings, TrainSettings
from agentcli.training.loop.checkpoints import save_checkpoint
from agentcli.training.loop.distributed import World, wait_for_all
from agentcli.training.loop.optimizer_state import load_optimizer, save_optimizer
from agentcli.training.loop.recorder import Progress, Recorder, train_recorded
from agentcli.training.loop.snapshots import Facts, Snapshots, Trained
from agentcli.training.loop.trackers import tracked


@dataclass(frozen=True)
class Job:
    """Train `model_dir` on `trees` and write a checkpoint (or adapter) directory to `out`.

    Of `settings`, credit, reference, carry_optimizer and objective say how the caller chose the rest and are not read.
    """

    trees: Path
    model_dir: str
    out: Path
    settings: TrainSettings
    seed: int
    metrics: Path
    """metrics.jsonl."""
    reference: str | None = None
    """Model directory. What None means, the objective says."""
    optimizer_in: Path | None = None
    """Safetensors: the moments to go on with."""
    optimizer_out: Path | None = None
    progress: Progress | None = None
    ready: Callable[[], None] | None = None
    """Called when all is read and checked, before anything is written."""
    snapshot: Path | None = None
    """Folder: every settings.save_every_updates updates a snapshot goes there; a call that finds one goes on from it; the caller
    deletes it in the end."""
    tracking: TrackingSettings | None = None
    run_name: str | None = None
    tracking_dir: Path | None = None
    """Folder of trackers; None: `tracking` beside `metrics`."""


def optimise(job: Job, trainer: Any, model: torch.nn.Module) -> tuple[Trained, int]:
    """AdamW without decay on norms and biases, its moments restored, and the number of updates they have seen.

    The learning rate is constant after a linear warm-up over the first `warmup_updates` updates of the optimiser's life.
    """
    settings, decayed = job.settings, set(trainer.get_decay_parameter_names(model))
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": settings.weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.adam_betas, fused=True)
    before = load_optimizer(optimizer, model, job.optimizer_in) if job.optimizer_in is not None else 0
    warmup = max(1, settings.warmup_updates)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: min(1.0, (before + update + 1) / warmup))
    trainer.optimizer, trainer.lr_scheduler = optimizer, scheduler
    return Trained(model, optimizer, scheduler, trainer.args.device), before


def run(
    job: Job, trainer: Any, kind: type[Any], updates: int, facts: Facts, trained: Trained, before: int, world: World
) -> None:
    """The updates that are not done, each with its line of `kind`. `facts` must be those of a snapshot that is gone on from,
    `before` are the updates that the optimiser had seen."""
    facts = {**facts, "updates before": before}
    snapshots = Snapshots(job.snapshot, job.settings.save_every_updates, facts, trained, world)
    trainer.add_callback(snapshots)
    trainer.recorder = Recorder(job.metrics, kind, updates, snapshots, world.main, job.progress)
    folder = job.tracking_dir or job.metrics.with_name("tracking")
    told = tracked(job.tracking, job.run_name, folder, "train", job.settings, world)
    train_recorded(trainer, trainer.recorder, told, before, job.ready)


def save(job: Job, model: Any, tokenizer: Any, trained: Trained, world: World) -> None:
    """The checkpoint and the optimiser state, written by the first process; returns when all are here."""
    if world.main:
        save_checkpoint(model, tokenizer, job.out)
        if job.optimizer_out is not None:
            save_optimizer(trained.optimizer, model, job.optimizer_out)
    wait_for_all(world)
