"""Sends metrics and sampled trajectories to TensorBoard, W&B, trackio or MLflow.

Only these and the settings are sent, through the trackers' official clients. The
callbacks of transformers are not suitable: they number updates from the Trainer's
state, which starts at 0 in every call. They also upload models, watch gradients or
publish a Space if an environment variable says so. A client is imported only if it is
used.

The step of a metric is the number of updates that the optimiser has made, so the
iterations of a loop that share a `folder` form one curve. The metrics of the trees are
logged at the first update that learned from them. The folder stores the id of the run;
if it is deleted, the next training is a new run.
"""

import html
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import AgentCliError, MissingError, UsageError
from agentcli.policies.registry import require_installed
from agentcli.records.faults import one_line
from agentcli.records.files import write_atomic
from agentcli.records.regular import is_there, read_regular
from agentcli.records.settings import TrackingSettings

TextRow = tuple[str, ...]
"""A row of texts, in the order of TEXT_COLUMNS."""
TEXT_COLUMNS = ("task", "kind", "outcome", "trajectory")
SAMPLES = "rollout/samples"
"""The name under which texts are logged."""


class Sampled(NamedTuple):
    """The figures and texts of the trees that a training learns from."""

    figures: Mapping[str, float] = {}
    texts: Sequence[TextRow] = ()


Log = Callable[[Mapping[str, float], Sequence[TextRow], int], None]
"""(figures, texts, step)"""
NO_FIGURES = ("schema_version", "update")
NEEDS = {"mlflow": ("mlflow-skinny", "mlflow")}
"""The package of a tracker and its extra, where they are not the name and trackers."""


def check_trackers(tracking: TrackingSettings, folder: Path | None = None) -> None:
    """Checks tracking.to as far as possible before any work.

    Contacts no service and writes nothing. `folder` is where trackers write. Raises
    MissingError for a tracker that is not installed and for W&B without an API key,
    unless it is offline; UsageError if the folder cannot be written.
    """
    for name in tracking.to:
        package, extra = NEEDS.get(name, (name, "trackers"))
        require_installed(package, extra, f"tracking.to: {name}")
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
    """Raises MissingError if W&B has no API key.

    On a terminal it would ask for one, in the middle of the work.
    """
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
    """Raises UsageError if the folder cannot be written or created."""
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
    """Names, folder and samples that trackers need besides metrics."""

    tracking: TrackingSettings
    name: str
    """Name of the run."""
    folder: Path
    """Contains event files and the ids of runs."""
    kind: str
    """Prefix of every metric: train or sft."""
    settings: dict[str, Any]
    sampled: Sampled = field(default_factory=Sampled)
    """Logged with the first update, or alone if there is no update."""


@contextmanager
def open_trackers(
    tracked: Tracked | None,
    before: int,
    done: int,
) -> Iterator[Callable[[msgspec.Struct], None] | None]:
    """A function that sends a metrics line to every tracker; None without trackers.

    A field is sent as `kind`/<field>. The optimiser had made `before` updates before
    this training; this training made `done` updates before it was killed. Raises
    AgentCliError if a tracker cannot be opened.
    """
    if tracked is None:
        yield None
        return
    first = before + done + 1
    with ExitStack() as stack:
        logs = [_open(stack, name, tracked, first) for name in tracked.tracking.to]
        # If an update is done, the samples were sent with it.
        waiting = tracked.sampled if done == 0 else Sampled()

        def send(line: msgspec.Struct) -> None:
            nonlocal waiting
            fields = msgspec.structs.asdict(line)
            figures = dict(waiting.figures)
            for key, value in fields.items():
                if key not in NO_FIGURES:
                    figures[f"{tracked.kind}/{key}"] = value
            for log in logs:
                log(figures, waiting.texts, before + fields["update"])
            waiting = Sampled()

        yield send
        if waiting.figures:
            for log in logs:
                log(waiting.figures, waiting.texts, first)


def _open(stack: ExitStack, tracker: str, tracked: Tracked, first: int) -> Log:
    """Opens a tracker until the stack closes."""
    try:
        return stack.enter_context(OPENERS[tracker](tracked, first))
    except Exception as error:
        # Clients raise all kinds of exceptions if a service is out of reach or refuses
        # access.
        raise AgentCliError(
            f"tracking.to: {tracker} does not open ({one_line(error)}); leave it out of "
            "tracking.to"
        ) from error


@contextmanager
def _tensorboard(tracked: Tracked, first: int) -> Iterator[Log]:
    """Writes TensorBoard event files into the folder.

    Readers hide what a killed training wrote after its last snapshot.
    """
    from torch.utils.tensorboard import SummaryWriter

    # Texts are not hidden, so the folder stores the step of the last ones.
    mark = tracked.folder / "samples-step"
    last = int(read_regular(mark)) if is_there(mark) else -1
    _wait_for_a_later_name(tracked.folder)
    with SummaryWriter(str(tracked.folder), purge_step=first) as writer:

        def log(
            figures: Mapping[str, float], texts: Sequence[TextRow], step: int
        ) -> None:
            for key, value in figures.items():
                writer.add_scalar(key, value, step)
            if texts and step > last:
                for number, row in enumerate(texts, 1):
                    writer.add_text(f"{SAMPLES}/{number}", _as_code(row), step)
                mark.write_text(str(step))
            writer.flush()

        yield log


def _wait_for_a_later_name(folder: Path) -> None:
    """Waits for the next second if an event file of the current second exists.

    TensorBoard reads event files in the order of their names, which begin with the
    second. The rest of the name is unordered, so a reader could hide the later metrics.
    """
    now = time.time()
    if any(folder.glob(f"events.out.tfevents.{int(now)}.*")):
        time.sleep(1 - now % 1)


@contextmanager
def _wandb(tracked: Tracked, first: int) -> Iterator[Log]:
    """Logs to one W&B run. W&B ignores steps that it already has.

    Console, code, git state, packages, the machine's name and load, and crash reports
    are not sent.
    """
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
        name=tracked.name,
        id=_remembered(tracked.folder / "wandb-run", secrets.token_hex(4)),
        resume="allow",
        dir=str(tracked.folder),
        config=tracked.settings,
        settings=quiet,
    )

    def log(figures: Mapping[str, float], texts: Sequence[TextRow], step: int) -> None:
        row: dict[str, Any] = dict(figures)
        for number, text in enumerate(texts, 1):
            # A table would become a separate artifact.
            page = f"<pre>{html.escape(text[-1])}</pre>"
            row[f"{SAMPLES}/{number}"] = wandb.Html(page, inject=False)
        run.log(row, step=step)

    # As a context manager, the run would print the traceback of an error that is
    # already reported in one line.
    failed = True
    try:
        yield log
        failed = False
    finally:
        run.finish(exit_code=int(failed))


@contextmanager
def _trackio(tracked: Tracked, first: int) -> Iterator[Log]:
    """Logs to a run in trackio's own store (TRACKIO_DIR). Its messages go to stderr."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    kept = tracked.folder / "trackio-run"
    known = is_there(kept)
    name = _remembered(kept, tracked.name)
    with redirect_stdout(sys.stderr):
        trackio.init(
            project=tracked.tracking.project,
            name=name,
            config=tracked.settings,
            resume="allow" if known else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    last = SQLiteStorage.get_max_step_for_run(tracked.tracking.project, name)

    def log(figures: Mapping[str, float], texts: Sequence[TextRow], step: int) -> None:
        # trackio would store a step again when a resumed training repeats it.
        if last is not None and step <= last:
            return
        row: dict[str, Any] = dict(figures)
        if texts:
            data = [[*text[:-1], _as_code(text)] for text in texts]
            row[SAMPLES] = trackio.Table(columns=list(TEXT_COLUMNS), data=data)
        trackio.log(row, step=step)

    try:
        yield log
    finally:
        with redirect_stdout(sys.stderr):
            trackio.finish()


@contextmanager
def _mlflow(tracked: Tracked, first: int) -> Iterator[Log]:
    """Logs to one MLflow run: at MLFLOW_TRACKING_URI, or into files in the folder."""
    # Otherwise its import would send figures about its use.
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    # Its newer releases refuse to begin a store of files unless they are told to.
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    files = (tracked.folder / "mlflow").absolute().as_uri()
    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", files))
    kept = tracked.folder / "mlflow-run"
    last = 0
    if is_there(kept):
        run = client.get_run(_remembered(kept, ""))
        for key in run.data.metrics:
            points = client.get_metric_history(run.info.run_id, key)
            last = max([last, *(point.step for point in points)])
        client.update_run(run.info.run_id, status="RUNNING")
    else:
        project = tracked.tracking.project
        experiment = client.get_experiment_by_name(project)
        place = experiment.experiment_id if experiment else None
        run = client.create_run(
            place or client.create_experiment(project),
            run_name=tracked.name,
        )
        params = [Param(name, str(value)) for name, value in tracked.settings.items()]
        client.log_batch(run.info.run_id, params=params)
        _remembered(kept, run.info.run_id)
    name = run.info.run_id

    def log(figures: Mapping[str, float], texts: Sequence[TextRow], step: int) -> None:
        # MLflow would store a step again when a resumed training repeats it.
        if step <= last:
            return
        now = int(time.time() * 1000)
        points = [Metric(key, float(one), now, step) for key, one in figures.items()]
        client.log_batch(name, metrics=points)
        for number, text in enumerate(texts, 1):
            client.log_text(name, text[-1], f"{SAMPLES}/{step}-{number}.txt")

    ended = "FAILED"
    try:
        yield log
        ended = "FINISHED"
    finally:
        client.set_terminated(name, ended)


OPENERS = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}


def _as_code(row: TextRow) -> str:
    """Formats the text as a Markdown code block, so that it is shown unchanged."""
    *_, text = row
    return "\n".join(f"    {line}" for line in text.splitlines())


def _remembered(path: Path, new: str) -> str:
    """The word in the file; if there is no file, writes `new` and returns it."""
    if is_there(path):
        return read_regular(path).decode(errors="replace").strip()
    write_atomic(path, f"{new}\n".encode())
    return new
