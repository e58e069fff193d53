"""One training from its settings to its files, whatever is trained.

Imitation and every objective of `train` provide data, plan and trainer. The functions
`start`, `adamw`, `run` and `save` do the rest.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import torch
from transformers import set_seed

from agentcli.records.kernel import die_with_parent
from agentcli.records.section import Section
from agentcli.records.settings import TrackingSettings
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.arguments import trainer_seed
from agentcli.training.loop.checkpoints import save_checkpoint
from agentcli.training.loop.distributed import (
    Processes,
    announced_processes,
    wait_for_all,
)
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.loop.optimizer_state import (
    load_optimizer,
    save_optimizer,
    trained_parameters,
)
from agentcli.training.loop.optimizers import (
    check_optimizer,
    fill_gradients,
    make_optimizer,
)
from agentcli.training.loop.recorder import OnUpdate, Recorder
from agentcli.training.loop.sharding import check_shared, whole_weights
from agentcli.training.loop.snapshots import Facts, Snapshots, Trained
from agentcli.training.loop.trackers import (
    Sampled,
    Tracked,
    check_trackers,
    open_trackers,
)
from agentcli.training.loop.trainer import PlannedTrainer
from agentcli.training.sharding_check import check_sharding

AnySettings = TypeVar("AnySettings", bound=Section)
Line = TypeVar("Line", bound=MetricsLine)


@dataclass(frozen=True)
class Job(Generic[AnySettings]):
    """The starting point of a training, its settings, and its output paths.

    The same job on the same data gives the same bits on one machine with the same
    number of threads, even if it is stopped and resumed. Under torchrun every process
    has the job, and the first one writes.
    """

    model: str
    """Directory or hub id that training starts from."""
    out: Path
    """Checkpoint or adapter directory to write."""
    settings: AnySettings
    seed: int
    metrics: Path
    """metrics.jsonl."""
    stage: str = "train"
    """train or sft: the section of its settings, and the prefix of tracked metrics."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Values for the chat template (policy.chat_template_kwargs)."""
    reference: str | None = None
    """Model directory of the reference; None means what the objective says."""
    critic: str | None = None
    """Directory of the critic to continue, or of a model to make one from, if the
    objective trains a critic.
    """
    critic_out: Path | None = None
    """Directory where the critic is written."""
    optimizer_in: Path | None = None
    """A safetensors file with the moments to continue with."""
    optimizer_out: Path | None = None
    progress: OnUpdate | None = None
    ready: Callable[[], None] | None = None
    """Called when everything is read and checked, before anything is written."""
    snapshot: Path | None = None
    """Folder of the snapshot, written every settings.save_every_updates updates. If it
    contains one, the training resumes from it. The caller deletes it at the end.
    """
    tracking: TrackingSettings | None = None
    run_name: str | None = None
    tracking_dir: Path | None = None
    """Folder for trackers; None: `tracking` next to `metrics`."""
    sampled: Sampled | None = None
    """The trajectories and figures of the trees that trackers get."""


def start(job: Job[Any]) -> Processes:
    """Checks everything possible before any work, and seeds all global generators.

    Raises UsageError for a launcher that started only one of several processes and for
    a model that cannot be sharded, MissingError for a tracker or an optimiser that is
    not installed.
    """
    check_trackers(job.tracking)
    processes = announced_processes()
    if isinstance(job.settings, TrainSettings):
        check_optimizer(job.settings)
    check_sharding(job.stage, job.settings, processes.size)
    if processes.size > 1:
        # If the launcher is killed, its processes would wait for each other forever.
        die_with_parent(signal.SIGKILL)
    set_seed(trainer_seed(job.seed))
    return processes


@contextmanager
def keeping_cache(model: Any) -> Iterator[None]:
    """Restores the model's use_cache after the block.

    Trainer turns it off, but the checkpoint will be used for generation.
    """
    # A vision model has this setting in the configuration of its text model.
    use_cache = getattr(model.config, "use_cache", None)
    yield
    if use_cache is None:
        vars(model.config).pop("use_cache", None)
    else:
        model.config.use_cache = use_cache


def adamw(
    job: Job[TrainSettings],
    trainer: PlannedTrainer,
    model: torch.nn.Module,
    rate_of: Callable[[str], float] | None = None,
) -> Trained:
    """Gives the trainer its optimiser, without weight decay on norms and biases.

    `rate_of` gives the learning rate of a parameter by its name; None:
    train.learning_rate for all. Rates are constant after a linear warm-up over the
    first `warmup_updates` updates of the optimiser's lifetime. Its moments are restored
    from job.optimizer_in.
    """
    settings = job.settings
    if settings.sharding == "fsdp":
        check_shared(model)
    decaying_names = set(trainer.get_decay_parameter_names(model))
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for name, parameter in trained_parameters(model).items():
        full_rate = rate_of(name) if rate_of else settings.learning_rate
        for decays in (True, False):
            decay = settings.weight_decay if decays else 0.0
            empty = {"params": [], "weight_decay": decay, "lr": full_rate}
            groups.setdefault((full_rate, decays), empty)
        groups[full_rate, name in decaying_names]["params"].append(parameter)
    optimizer = make_optimizer(settings, list(groups.values()))
    before = 0
    if job.optimizer_in is not None:
        before = load_optimizer(optimizer, model, job.optimizer_in)
    warmup = max(1, settings.warmup_updates)

    def rate(update: int) -> float:
        return min(1.0, (before + update + 1) / warmup)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    trainer.optimizer = optimizer
    trainer.lr_scheduler = scheduler
    return Trained(model, optimizer, scheduler, trainer.args.device, before)


def run(
    job: Job[Any],
    trainer: PlannedTrainer,
    trained: Trained,
    kind: type[Line],
    facts: Facts,
    updates: int,
    processes: Processes,
) -> list[Line]:
    """Runs the updates that are not done yet. Returns the metrics lines of all updates.

    `facts` must equal those of the snapshot from which it resumes.
    """
    snapshots = Snapshots(
        job.snapshot, job.settings.save_every_updates, facts, trained, processes
    )
    trainer.add_callback(snapshots)
    fill_gradients(trained.optimizer)
    recorder = Recorder(
        metrics=job.metrics,
        kind=kind,
        total=updates,
        snapshots=snapshots,
        main=processes.main,
        progress=job.progress,
    )
    trainer.recorder = recorder
    if job.ready is not None and processes.main:
        job.ready()
    recorder.begin()
    tracked = _tracked(job) if processes.main else None
    before = trained.updates_before
    with (
        recorder.writing(),
        open_trackers(tracked, before, recorder.done) as recorder.track,
    ):
        if recorder.done < updates:
            trainer.train()
    return recorder.lines


def _tracked(job: Job[Any]) -> Tracked | None:
    """Names, folder and samples for the trackers; None if there are no trackers."""
    if job.tracking is None or not job.tracking.to:
        return None
    return Tracked(
        tracking=job.tracking,
        name=job.run_name,
        folder=job.tracking_dir or job.metrics.with_name("tracking"),
        kind=job.stage,
        settings=msgspec.to_builtins(job.settings),
        sampled=job.sampled or Sampled(),
    )


def save(job: Job[Any], tokenizer: Any, trained: Trained, processes: Processes) -> None:
    """Writes the checkpoint, and the optimiser state if the job names a file for it.

    Returns when all processes have finished.
    """
    model = trained.model
    weights = whole_weights(model)
    if processes.main:
        save_checkpoint(model, tokenizer, job.out, weights)
    if job.optimizer_out is not None:
        save_optimizer(trained.optimizer, model, job.optimizer_out, processes.main)
    wait_for_all(processes)
