"""The base class of all trainers, their arguments, and the recorder of their updates.

The Trainers of transformers and TRL compute the loss and make the updates; they only
run the loop. They report nothing, keep no checkpoints of their own and show no progress
bar. Weights are float32. By default, a GPU recomputes activations in the backward pass,
and CUDA computes in bfloat16 under autocast; the CPU does neither.

After each update a metrics line, a snapshot and the progress are recorded, in this
order, so a snapshot never counts a line that is not on disk. A
training that resumes cuts metrics.jsonl to the lines that its snapshot counts, and
appends: no line is duplicated or missing.
"""

import math
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainingArguments

from agentcli.errors import AgentCliError, DataError
from agentcli.policies.load import accelerator
from agentcli.records.files import RecordWriter, derive_seed, read_records, writing
from agentcli.training.loop import distributed
from agentcli.training.loop.snapshots import AGAIN, SnapshotHeader, Snapshots
from agentcli.training.metrics import MetricsLine

OnUpdate = Callable[[int, int, dict[str, float]], None]
"""Called with (updates done, updates in all, figures to show): once before the first
update, without figures, and after each metrics line.
"""
Line = TypeVar("Line", bound=MetricsLine)
Track = Callable[[Line], None]


class Recorder(Generic[Line]):
    """The metrics lines of one training, including those from before it was killed.

    They are in the file `metrics` (plain .jsonl) and in `lines`. Every process has a
    recorder; only the first one writes. Raises DataError if a snapshot exists but some
    of its lines are missing.
    """

    def __init__(
        self,
        metrics: Path,
        kind: type[Line],
        total: int,
        snapshots: Snapshots,
        main: bool,
        progress: OnUpdate | None,
    ) -> None:
        self.total = total
        self.done = 0
        self.counters: dict[str, float] = {}
        """A trainer's own running sums, which survive a kill."""
        self.lines: list[Line] = []
        if snapshots.resumed is not None:
            self.done = snapshots.resumed.update
            self.counters = snapshots.resumed.counters
            self.lines = _lines_before(metrics, kind, snapshots.resumed, snapshots.path)
        seconds_before = self.lines[-1].seconds if self.lines else 0.0
        self.track: Track[Line] | None = None
        self._main = main
        self._metrics = metrics
        self._snapshots = snapshots
        self._progress = progress
        self._writer: RecordWriter | None = None
        self._started = time.perf_counter() - seconds_before

    def begin(self) -> None:
        """Shows where training begins: at 0, or at the snapshot that it resumes."""
        if self._progress is not None:
            self._progress(self.done, self.total, {})

    def seconds(self) -> float:
        """Training time so far, including the time before the snapshot."""
        return round(time.perf_counter() - self._started, 3)

    def record(self, update: int, line: Line | None, figures: dict[str, float]) -> None:
        """Records one update; every process calls it.

        `line` is None if none is due. `figures` are for the progress bar.
        """
        if line is not None:
            self.lines.append(line)
            if self._writer is not None:
                self._writer.write(line)
            if self.track is not None:
                self.track(line)
        self._snapshots.save(update, len(self.lines), self.counters)
        if line is not None and self._progress is not None:
            self._progress(update, self.total, figures)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Opens the metrics file to append after the lines that the snapshot counts."""
        if not self._main:
            yield
            return
        resumed = self._snapshots.resumed is not None
        if resumed:
            _cut(self._metrics, len(self.lines))
        with RecordWriter(self._metrics, append=resumed) as self._writer:
            yield


def _lines_before(
    metrics: Path,
    kind: type[Line],
    snapshot: SnapshotHeader,
    path: Path | None,
) -> list[Line]:
    """The lines that existed when the snapshot at `path` was written."""
    if snapshot.lines == 0:
        return []
    lines = list(islice(read_records(metrics, kind), snapshot.lines))
    if len(lines) < snapshot.lines:
        raise DataError(
            f"{metrics}: ends after {len(lines)} lines, {path} was written after "
            f"{snapshot.lines}; {AGAIN}"
        )
    return lines


def _cut(metrics: Path, lines: int) -> None:
    """Truncates the file after this many lines."""
    with writing(metrics), open(metrics, "ab+") as file:
        file.seek(0)
        for _ in range(lines):
            file.readline()
        file.truncate(file.tell())


GROUP_SECONDS = 6 * 60 * 60
"""How long processes wait for each other.

The first one writes checkpoints and moments meanwhile, 91 GB for 7B, onto a disk that
may be slow. torchrun ends them at once if one of them ends, so nothing waits in vain.
"""

Arguments = TypeVar("Arguments", bound=TrainingArguments)


def trainer_arguments(
    kind: type[Arguments],
    seed: int,
    processes: distributed.Processes,
    bf16: bool | None = None,
    checkpointing: bool | None = None,
    sees: bool = False,
    **more: Any,
) -> Arguments:
    """The arguments of one trainer; `more` are those that only this trainer needs.

    If the model `sees`, it may have parameters that get no gradient from any row.

    Starts the process group, if there is one. Raises UsageError if the launcher did not
    start the processes that it announced.
    """
    device = accelerator()
    cuda = device == "cuda"
    on_gpu = device != "cpu"
    with warnings.catch_warnings():
        # transformers 5.23 renamed gradient_checkpointing, and 5.19 knows only this
        # name.
        warnings.simplefilter("ignore", FutureWarning)
        arguments = kind(
            # A Trainer creates a missing output folder. This one exists, so a killed
            # training leaves no folder behind.
            output_dir=tempfile.gettempdir(),
            use_cpu=not on_gpu,
            bf16=cuda if bf16 is None else bf16,
            gradient_checkpointing=on_gpu if checkpointing is None else checkpointing,
            seed=trainer_seed(seed),
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="steps",
            # Updates are recorded in `log`, so it must be called after each of them.
            logging_steps=1,
            # The filter would put the mean of other losses in the place of one that is
            # not finite, which `log` refuses.
            logging_nan_inf_filter=False,
            # Batches have fields of their own, which no model's forward names.
            remove_unused_columns=False,
            dataloader_pin_memory=cuda,
            ddp_find_unused_parameters=sees,
            ddp_timeout=GROUP_SECONDS,
            # The plan already holds the updates of all epochs.
            num_train_epochs=1,
            **more,
        )
        _ = arguments.device  # starts the process group
    distributed.check_processes(processes, arguments.world_size)
    return arguments


def trainer_seed(seed: int) -> int:
    """A 32-bit seed, which numpy's global generator accepts too."""
    return derive_seed("trainer", seed) % 2**32


class TrainerUpdate(NamedTuple):
    """The update that the Trainer has just made."""

    update: int
    """Its number, from 1."""
    grad_norm: float
    learning_rate: float
    loss: float
    """The loss as computed by the Trainer."""


class PlannedTrainer(Trainer, ABC):
    """A Trainer that runs those microbatches of a plan that are not done yet.

    A subclass defines `parts`, `collate` and `line`. `recorder` must be set before
    training begins; it knows which updates are done.
    """

    recorder: Recorder[Any]
    remedy: ClassVar[str]
    """The advice for when numbers are no longer finite."""
    finite: ClassVar[tuple[str, ...]] = ()
    """Fields of a line that must be finite, besides loss and grad_norm."""
    shown: ClassVar[tuple[str, ...]]
    """Fields of a line that the progress bar shows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # In the place of its progress bar, the Trainer would print every log.
        self.remove_callback(PrinterCallback)
        # compute_loss normalises over the whole update. Otherwise Trainer would divide
        # by the number of microbatches.
        self.model_accepts_loss_kwargs = True

    @abstractmethod
    def parts(self, done: int) -> Sequence[Any]:
        """This rank's microbatches, as planned, of all updates after the first `done`."""

    @abstractmethod
    def collate(self, part: Any) -> dict[str, Tensor]:
        """The tensors of one microbatch, which are made when it is run."""

    @abstractmethod
    def line(self, latest: TrainerUpdate) -> MetricsLine | None:
        """The metrics line of an update, if one is due. Resets the running sums."""

    def get_train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """The microbatches as planned: shuffled, padded and assigned to this rank."""
        # Not prepared by accelerate, which would deal the microbatches to ranks again.
        planned: Any = self.parts(self.recorder.done)
        return DataLoader(planned, batch_size=None, collate_fn=self.collate)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        """The microbatches of one update, and the divisor of the loss."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        return batches, 1

    def _defer_fsdp_gradient_reduction(self) -> Any:
        """Does not defer: otherwise every process would hold all gradients."""
        return nullcontext()

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Returns 0: operations are not counted."""
        return 0

    def update_number(self) -> int:
        """The number, from 1, of the update just made."""
        return self.recorder.done + int(self.state.global_step)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Records the update that Trainer has just made.

        Raises AgentCliError if a number is no longer finite.
        """
        if "grad_norm" not in logs:
            return  # the Trainer's summary at the end
        update = self.update_number()
        numbers = {name: float(logs[name]) for name in ("loss", "grad_norm")}
        rate = float(logs["learning_rate"])
        line = self.line(TrainerUpdate(update, learning_rate=rate, **numbers))
        figures = {}
        if line is not None:
            numbers.update({name: getattr(line, name) for name in self.finite})
            figures = {name: getattr(line, name) for name in self.shown}
        _refuse_infinite(update, numbers, self.remedy)
        self.recorder.record(update, line, figures)


class RunningFigures:
    """Sums over the microbatches of an update, then over all ranks, in float64.

    With `maximum`, the largest value is kept instead; values must not be negative then.
    """

    def __init__(self, device: torch.device, *, maximum: bool = False) -> None:
        self._device = device
        self._maximum = maximum
        self._names: tuple[str, ...] = ()
        # float32 would lose the digits of a sum over a hundred thousand tokens.
        self._values = torch.zeros(0, dtype=torch.float64, device=device)

    def add(self, **values: Tensor) -> None:
        """Adds one microbatch: a scalar for each name, the same names every time."""
        stacked = torch.stack(list(values.values()))
        if not self._names:
            self._names = tuple(values)
            self._values = torch.zeros(
                len(values), dtype=torch.float64, device=self._device
            )
        combine = torch.maximum if self._maximum else torch.add
        self._values = combine(self._values, stacked)

    def take(self, processes: distributed.Processes) -> dict[str, float]:
        """The totals of all ranks by name; resets them for the next update."""
        values = distributed.sum_over_ranks(
            self._values, processes, self._maximum
        ).tolist()
        figures = dict(zip(self._names, values, strict=True))
        self._names = ()
        return figures


def _refuse_infinite(update: int, numbers: Mapping[str, float], remedy: str) -> None:
    """Raises AgentCliError unless all numbers are finite."""
    if all(math.isfinite(value) for value in numbers.values()):
        return
    shown = ", ".join(f"{name} {value}" for name, value in numbers.items())
    raise AgentCliError(
        f"update {update}: {shown}: not finite; nothing was saved; {remedy}"
    )
