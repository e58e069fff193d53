"""Sends the figures of metrics.jsonl to TensorBoard, Weights & Biases or trackio.

Only figures and settings are sent, through the clients that these publish. The
callbacks of transformers do not serve: they number updates from the Trainer's state,
which starts at 0 in every call. They also upload models, watch gradients or publish a
Space when an environment variable says so. Nothing is imported unless it is asked for.

The step of a figure is the number of updates that the optimiser has seen, so the
iterations of a loop that share a `folder` are one curve. The folder remembers the run;
where it is deleted, the next training is a new run.
"""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import AgentCliError, MissingError, UsageError
from agentcli.records.settings import TrackingSettings

Log = Callable[[dict[str, float], int], None]
"""(figures, step)"""
NO_FIGURES = ("schema_version", "update")


def check_trackers(
    tracking: TrackingSettings | None, folder: Path | None = None
) -> None:
    """Checks what can be known of tracking.to before any work.

    Asks no service and writes nothing. `folder` is where trackers write. Raises
    MissingError for a tracker that is not installed and for W&B without an API key,
    unless it is offline; UsageError for a place where nothing can be written.
    """
    for name in tracking.to if tracking else ():
        try:
            # Importing would find any folder called wandb, and W&B makes one.
            metadata.version(name)
        except metadata.PackageNotFoundError as error:
            raise MissingError(
                f"tracking.to: {name} is not installed; get it with: pip install "
                "'agentcli[trackers]'"
            ) from error
        if name == "wandb":
            _check_key()
        if name == "trackio":
            from trackio.utils import TRACKIO_DIR

            _check_writable(
                TRACKIO_DIR,
                "trackio",
                "name another place for it with: export TRACKIO_DIR=DIR",
            )
        if folder is not None:
            _check_writable(
                folder, name, "move that away, or write elsewhere with -o DIR"
            )


def _check_key() -> None:
    """Raises MissingError where W&B has no key.

    On a terminal it would ask for one, in the middle of the work.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb
    from wandb.sdk import wandb_setup

    settings = wandb_setup.singleton().settings
    offline = settings.mode in ("offline", "dryrun", "disabled")
    if not (offline or settings.identity_token_file or wandb.api.api_key):
        raise MissingError(
            "tracking.to: wandb has no API key; type: wandb login, or: export "
            "WANDB_MODE=offline"
        )


def _check_writable(folder: Path, tracker: str, remedy: str) -> None:
    """Raises UsageError unless the folder can be written, or made."""
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        fault = "is no folder"
    elif not os.access(place, os.W_OK | os.X_OK):
        fault = "cannot be written"
    else:
        return
    raise UsageError(
        f"tracking.to: {tracker} writes to {folder}, but {place} {fault}; {remedy}"
    )


@dataclass(frozen=True)
class Tracked:
    """The words that trackers get besides figures."""

    tracking: TrackingSettings
    name: str | None
    """Name of the run, unless tracking.name is set."""
    folder: Path
    """Holds event files, and remembers runs."""
    kind: str
    """Prefix of every figure: train or sft."""
    settings: dict[str, Any]


@contextmanager
def open_trackers(
    tracked: Tracked | None,
    before: int,
    done: int,
) -> Iterator[Callable[[msgspec.Struct], None] | None]:
    """A function that sends a metrics line to every tracker; None where there is none.

    A field is sent as `kind`/<field>. The optimiser had made `before` updates before
    this training; `done` updates of this one were made before it was killed. Raises
    AgentCliError when a tracker does not open.
    """
    if tracked is None:
        yield None
        return
    first = before + done + 1
    with ExitStack() as stack:
        logs = [_open(stack, name, tracked, first) for name in tracked.tracking.to]

        def send(line: msgspec.Struct) -> None:
            fields = msgspec.structs.asdict(line)
            figures = {
                f"{tracked.kind}/{key}": value
                for key, value in fields.items()
                if key not in NO_FIGURES
            }
            for log in logs:
                log(figures, before + fields["update"])

        yield send


def _open(stack: ExitStack, tracker: str, tracked: Tracked, first: int) -> Log:
    """Opens a tracker until the stack closes."""
    try:
        return stack.enter_context(OPENERS[tracker](tracked, first))
    except Exception as error:
        # Whatever a client raises that cannot reach its service, or may not use it.
        reason = " ".join(str(error).split())
        raise AgentCliError(
            f"tracking.to: {tracker} does not open ({reason}); leave it out of "
            "tracking.to"
        ) from error


@contextmanager
def _tensorboard(tracked: Tracked, first: int) -> Iterator[Log]:
    """Event files in the folder.

    What a killed training wrote beyond its last snapshot is hidden when read.
    """
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tracked.folder), purge_step=first) as writer:

        def log(figures: dict[str, float], step: int) -> None:
            for key, value in figures.items():
                writer.add_scalar(key, value, step)
            writer.flush()

        yield log


@contextmanager
def _wandb(tracked: Tracked, first: int) -> Iterator[Log]:
    """One W&B run. W&B drops the steps that it has already.

    Console, code, git state, packages, the machine's name and load, and crash reports
    stay here.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    quiet = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    run = wandb.init(
        project=tracked.tracking.project,
        name=tracked.tracking.name or tracked.name,
        id=_remembered(tracked.folder / "wandb-run", secrets.token_hex(4)),
        resume="allow",
        dir=str(tracked.folder),
        config=tracked.settings,
        settings=quiet,
    )
    # As a context manager the run would print the traceback of an error that is
    # reported in one line.
    failed = True
    try:
        yield lambda figures, step: run.log(figures, step=step)
        failed = False
    finally:
        run.finish(exit_code=int(failed))


@contextmanager
def _trackio(tracked: Tracked, first: int) -> Iterator[Log]:
    """One run in trackio's own store (TRACKIO_DIR). Its notes go to stderr."""
    import trackio

    kept = tracked.folder / "trackio-run"
    known = kept.exists()
    name = tracked.tracking.name or tracked.name or secrets.token_hex(4)
    with redirect_stdout(sys.stderr):
        trackio.init(
            project=tracked.tracking.project,
            name=_remembered(kept, name),
            config=tracked.settings,
            resume="allow" if known else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    try:
        yield lambda figures, step: trackio.log(figures, step=step)
    finally:
        with redirect_stdout(sys.stderr):
            trackio.finish()


OPENERS = {"tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio}


def _remembered(path: Path, new: str) -> str:
    """The word in the file; `new`, which is written there, where there is none."""
    if path.exists():
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new + "\n")
    return new
