"""One training from its settings to its files, whatever is trained.

`TrainingTemplate` fixes what is done and in which order. Imitation and every objective
of `train` fill its hooks with their data, plan and trainer.
"""

import copy
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from typing import Any, ClassVar, Generic

import torch
from transformers import set_seed

from agentcli.policies.sight import Eyesight, beside_weights
from agentcli.records.kernel import die_with_parent
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop import distributed
from agentcli.training.loop.checkpoints import save_checkpoint
from agentcli.training.loop.job import AnySettings, Job
from agentcli.training.loop.snapshots import (
    Facts,
    Snapshots,
    Trained,
    check_optimizer,
    fill_gradients,
    load_optimizer,
    make_optimizer,
    model_fact,
    save_optimizer,
    settings_fact,
    trained_parameters,
)
from agentcli.training.loop.trackers import open_trackers
from agentcli.training.loop.trainer import (
    Arguments,
    PlannedTrainer,
    Recorder,
    trainer_arguments,
    trainer_seed,
)
from agentcli.training.metrics import MetricsLine
from agentcli.training.objectives import make_objective, not_read, options_of


@contextmanager
def keeping_generation(models: Iterable[Any]) -> Iterator[None]:
    """Restores use_cache and the generation configs of the models after the block.

    Trainer turns the cache off, but the checkpoint will be used for generation. TRL
    names a pad token, and transformers saves only what is untouched without a check.
    """
    configs = [
        (one, copy.deepcopy(getattr(one, "generation_config", None))) for one in models
    ]
    # A vision model has this setting in the configuration of its text model.
    before = [(one.config, getattr(one.config, "use_cache", None)) for one in models]
    try:
        yield
    finally:
        for config, use_cache in before:
            if use_cache is None:
                vars(config).pop("use_cache", None)
            else:
                config.use_cache = use_cache
        for one, generation_config in configs:
            one.generation_config = generation_config


class TrainingTemplate(ABC, Generic[AnySettings]):
    """A training as a template: `train` fixes the order, the hooks say what is learned.

    The order is part of the result. Loading a model draws the random numbers of a new
    adapter or head, and the updates draw those of dropout.
    """

    metrics: type[MetricsLine]
    """The class of its metrics.jsonl lines."""
    carries: ClassVar[bool] = True
    """Whether it may continue the moments of an earlier training."""
    tokenizer: Any
    model: Any
    sight: Eyesight | None = None
    """Reads the pictures of a vision model."""
    identity: Facts
    """Numbers and hashes of the training; a snapshot is resumed only if they match."""
    unread: Set[str] = frozenset()
    """Settings that cannot affect the result."""
    plan: Any
    """All updates and their microbatches."""
    trained: Trained

    def __init__(self, job: Job[AnySettings]) -> None:
        self.job = job
        self.settings = job.settings

    @abstractmethod
    def rows(self, *inputs: Any) -> int:
        """Reads the data, loads the model and plans. Returns the number of updates."""

    @abstractmethod
    def facts(self) -> Facts:
        """Hashes of the data, besides those of settings and starting model."""

    @abstractmethod
    def trainer(self) -> PlannedTrainer:
        """Moves the model to its device and makes the trainer of the plan."""

    @abstractmethod
    def statistics(self, lines: list[Any]) -> dict[str, Any]:
        """The statistics for the manifest, from the lines of all updates."""

    @abstractmethod
    def optimised(self, trainer: PlannedTrainer) -> Trained:
        """Gives the trainer its optimiser and schedule."""

    def networks(self) -> tuple[Any, ...]:
        """The models that are trained."""
        return (self.model,)

    def arguments(self, kind: type[Arguments], rows: int, **more: Any) -> Arguments:
        """The arguments of the trainer for microbatches of so many `rows`."""
        return trainer_arguments(
            kind,
            self.job.seed,
            self.processes,
            bf16=self.settings.bf16,
            checkpointing=self.settings.gradient_checkpointing,
            sees=self.sight is not None,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=self.plan.microbatches_per_update,
            **more,
        )

    def save(self) -> None:
        """Writes the checkpoint. All processes call it; the first one writes."""
        weights = distributed.whole_weights(self.model)
        if self.processes.main:
            beside = beside_weights(self.tokenizer, self.sight)
            save_checkpoint(self.model, beside, self.job.out, weights)

    def train(self, *inputs: Any) -> dict[str, Any]:
        """Trains on the inputs and writes the checkpoint last.

        Returns the statistics for the manifest, when all processes have finished.
        Raises DataError for files that do not belong together or contain nothing to
        train on, UsageError for settings that cannot take effect, AgentCliError if a
        loss is not finite or a tracker does not open.
        """
        self.processes = distributed.announced_processes()
        if self.processes.size > 1:
            # If the launcher is killed, its processes would wait for each other forever.
            die_with_parent(signal.SIGKILL)
        # Of all global generators.
        set_seed(trainer_seed(self.job.seed))
        updates = self.rows(*inputs)
        self.identity = {
            "updates": updates,
            "settings": settings_fact(self.settings, self.unread),
            **self.facts(),
            "starting model": model_fact(self.model),
        }
        with keeping_generation(self.networks()):
            trainer = self.trainer()
            if self.settings.sharding == "fsdp":
                distributed.check_shared(self.model)
            self.trained = self.optimised(trainer)
            if self.carries:
                self.identity["updates before"] = self.trained.updates_before
            lines = self._run(trainer, updates)
        # Last, and only when every update is done: a checkpoint means a whole training.
        self.save()
        if self.job.optimizer_out is not None and self.carries:
            optimizer, main = self.trained.optimizer, self.processes.main
            save_optimizer(optimizer, self.model, self.job.optimizer_out, main)
        distributed.wait_for_all(self.processes)
        return self.statistics(lines)

    def _run(self, trainer: PlannedTrainer, updates: int) -> list[Any]:
        """Runs the updates not done yet. Returns the metrics lines of all updates."""
        job: Job[Any] = self.job
        trained, processes = self.trained, self.processes
        snapshots = Snapshots(
            job.snapshot,
            job.settings.save_every_updates,
            self.identity,
            trained,
            processes,
            resumes=job.resumes,
        )
        trainer.add_callback(snapshots)
        fill_gradients(trained.optimizer)
        recorder = Recorder(
            metrics=job.metrics,
            kind=self.metrics,
            total=updates,
            snapshots=snapshots,
            main=processes.main,
            progress=job.progress,
        )
        trainer.recorder = recorder
        if job.ready is not None and processes.main:
            job.ready()
        if not job.resumes and processes.main:
            snapshots.forget()
        recorder.begin()
        tracked = job.tracked if processes.main else None
        before = trained.updates_before
        with (
            recorder.writing(),
            open_trackers(tracked, before, recorder.done) as recorder.track,
        ):
            # A kill may have come after the last update and before the checkpoint.
            if recorder.done < updates:
                trainer.train()
        return recorder.lines


class ObjectiveTraining(TrainingTemplate[TrainSettings]):
    """A training with one of the objectives of `train`."""

    def __init__(self, job: Job[TrainSettings]) -> None:
        super().__init__(job)
        self.options: Any = options_of(job.settings)
        """The typed train.options."""
        self.unread = not_read(job.settings)
        self.metrics = make_objective(job.settings.objective).metrics
        check_optimizer(job.settings)

    def rate_of(self, name: str) -> float:
        """The learning rate of the parameter with this name."""
        return self.settings.learning_rate

    def optimised(self, trainer: PlannedTrainer) -> Trained:
        """The optimiser of the settings, without weight decay on norms and biases.

        Rates are constant after a linear warm-up over the first `warmup_updates`
        updates of the optimiser's lifetime. Its moments are restored from
        job.optimizer_in.
        """
        settings, model = self.settings, self.model
        decaying_names = set(trainer.get_decay_parameter_names(model))
        # A schedule multiplies the rate of each group, so critic and policy can share
        # one.
        groups: dict[tuple[float, bool], dict[str, Any]] = {}
        for name, parameter in trained_parameters(model).items():
            full_rate = self.rate_of(name)
            for decays in (True, False):
                decay = settings.weight_decay if decays else 0.0
                empty = {"params": [], "weight_decay": decay, "lr": full_rate}
                groups.setdefault((full_rate, decays), empty)
            groups[full_rate, name in decaying_names]["params"].append(parameter)
        optimizer = make_optimizer(settings, list(groups.values()))
        before = 0
        if self.job.optimizer_in is not None:
            before = load_optimizer(optimizer, model, self.job.optimizer_in)
        warmup = max(1, settings.warmup_updates)

        def warmed(update: int) -> float:
            # Else every iteration of a loop would warm up anew.
            return min(1.0, (before + update + 1) / warmup)

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmed)
        trainer.optimizer = optimizer
        trainer.lr_scheduler = scheduler
        return Trained(model, optimizer, scheduler, trainer.args.device, before)
