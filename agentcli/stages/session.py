"""What every stage does around its work.

It keeps other writers out, refuses or accepts existing output, stores the settings it
was begun with, keeps a log, and writes its manifest entry last.

Nothing is written, and nothing is deleted for --overwrite, before there is output to
write: a stage that fails on its inputs leaves the run unchanged.

Also how its progress is shown: by itself, or as a phase of a loop.
"""

import asyncio
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from agentcli.errors import UsageError
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.files import RecordWriter, read_json, write_json
from agentcli.records.pictures import drop_unnamed, keep_pictures
from agentcli.records.processes import rank
from agentcli.records.regular import is_there
from agentcli.records.runs import (
    RunDirectory,
    RunLock,
    git_commit,
    link_latest,
    now,
    refuse_held,
    versions,
)
from agentcli.records.types import StageRecord
from agentcli.reports.standing import Count, Progress, Standing
from agentcli.stages.attempts import AttemptLog, Logged, NoteHandler
from agentcli.stages.plan import StagePlan, first_difference, plain


class Within(Progress):
    """The progress of one stage of a loop, as a phase of the loop's bar.

    Its notes are in the stage's log. `success` is shown under the name `of`, if given.
    """

    def __init__(self, loop: Progress, of: str | None = None) -> None:
        self._loop = loop
        self._of = of

    def start(self, standing: Standing) -> None:
        """Begins a phase."""
        self._count = Count(standing)
        self._show()

    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Shows the progress of the phase."""
        self._count.add(n, success, figures)
        self._show()

    def wait(self, text: str) -> None:
        """Shows what the loop is waiting for."""
        self._loop.wait(text)

    def _show(self) -> None:
        count = self._count
        figures = {}
        if count.success is not None and self._of is not None:
            figures[self._of] = round(count.success, 2)
        self._loop.phase(f"{count.standing.title} {count.number}", figures)


def updates_bar(
    progress: Progress, title: str
) -> Callable[[int, int, Mapping[str, float]], None]:
    """A trainer's callback (updates done, updates in all, figures) for the bar.

    The first call, without figures, says where training begins.
    """
    done = 0

    def move(
        update: int,
        total: int,
        figures: Mapping[str, float],
    ) -> None:
        nonlocal done
        if not figures:
            progress.start(Standing(title, total, done=update))
        else:
            progress.advance(update - done, figures={"loss": figures["loss"]})
        done = update
        if update == total:
            progress.stop()

    return move


PlanT = TypeVar("PlanT", bound=StagePlan)
ResultT = TypeVar("ResultT")
Result = StageRecord | EvaluationSummary
"""The result of a stage."""


@dataclass(frozen=True)
class Invocation:
    """How a stage was called.

    The command line and the names of the layers go into the manifest. The flags say
    what to do with existing output, and `progress` gets what the user should see.
    """

    command: list[str]
    resume: bool = False
    overwrite: bool = False
    progress: Progress = field(default_factory=Progress)
    layers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UsageError(
                "--resume and --overwrite exclude each other; give one of them"
            )


class Begun(msgspec.Struct):
    """The start of a stage: RUN/settings/<stage>.json."""

    settings: dict[str, Any]
    """The settings that a resume must not change."""
    inputs: dict[str, str]
    """SHA-256 by path."""
    resolved: dict[str, Any]
    """All settings."""


def begun_with(run: Path, stage: str) -> dict[str, Any] | None:
    """All settings with which `stage` was begun in `run`, with the model in use.

    None if they are not recorded. Raises DataError for a damaged file.
    """
    path = RunDirectory(run).begun(stage)
    if not is_there(path):
        return None
    return read_json(path, Begun).resolved


class Session:
    """One planned stage running in its run directory, for a `with` statement.

    Anything that libraries print goes to stderr: stdout is for results. If torchrun
    started several processes of one training, each has a session; only the first locks
    and writes.
    """

    def __init__(self, plan: StagePlan, invocation: Invocation) -> None:
        self.plan = plan
        self.run = plan.run
        self.settings = plan.settings
        self.invocation = invocation
        self._started = now()
        self._clock = time.perf_counter()
        self._seconds_before = 0.0
        self._existing: list[Path] = []
        self._writing = False
        self._begun = self.run.begun(plan.stage)
        self._main = rank() == 0
        self._lock: RunLock | None = None
        self._command = shlex.join(invocation.command) or plan.stage
        logs = self.run.path / "logs"
        self._log = AttemptLog(logs, plan.stage, self._command)
        self.progress: Progress = Logged(invocation.progress, self._log)
        self._notes = NoteHandler(self.progress)

    def __enter__(self) -> "Session":
        self._elsewhere = redirect_stdout(sys.stderr)
        self._elsewhere.__enter__()
        logging.getLogger("agentcli").addHandler(self._notes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logging.getLogger("agentcli").removeHandler(self._notes)
        self._elsewhere.__exit__(kind, error, trace)
        self._log.close(error)
        if self._lock is not None:
            self._lock.release()

    def check(self) -> None:
        """Refuses what must not begin, and locks the run against other writers.

        Raises UsageError if output exists and neither flag is given, if another command
        is writing there, or if a resumed stage was begun with other settings or inputs
        (the first difference is named); and what `check_trackers` raises.
        """
        if self.run.path.exists():
            self._hold()
        self._compare()

    def preview(self) -> None:
        """Refuses what `check` refuses, without taking a lock.

        Notes the state of a stage that is to be resumed.
        """
        refuse_held(self.run.path)
        self._compare()
        if self.invocation.resume:
            standing = self._standing()
            self.progress.note(f"{self.run.path}: {self.plan.stage} {standing}")

    @property
    def resumed(self) -> bool:
        """Whether earlier output is to be continued."""
        return self.invocation.resume and bool(self._existing)

    @property
    def done(self) -> StageRecord | None:
        """The manifest entry of this stage, if it is resumed after it had finished."""
        if not self.invocation.resume:
            return None
        return self.run.finished(self.plan.stage)

    def nothing_owed(self, record: ResultT) -> ResultT:
        """Notes that there is nothing left to do, and returns the recorded result."""
        self.progress.note(
            f"{self.run.path}: {self.plan.stage} is complete, nothing is owed"
        )
        return record

    def start(self) -> None:
        """Begins to write; calling it again has no effect.

        The stage no longer counts as done, output to be replaced is deleted, and the
        settings are stored for --resume.

        Raises UsageError if another command has begun to write there since `check`, and
        what `check_trackers` raises.
        """
        if not self._main or self._writing:
            return
        self._writing = True
        # Damaged inputs are refused here, before anything is written or deleted.
        hashes = self.plan.hashes
        self._check_trackers()
        self._hold()
        # If the folder did not exist, `check` could not lock it.
        for path in self.plan.outputs:
            if is_there(path) and path not in self._existing:
                raise UsageError(
                    f"{path} has just been written by another command; write "
                    "elsewhere with -o DIR"
                )
        self.run.forget_stage(self.plan.stage, self.plan.outputs)
        if self.invocation.overwrite:
            for path in self._existing:
                _delete(path)
            drop_unnamed(self.run)
        begun = Begun(self.plan.determining, hashes, plain(self.settings))
        write_json(self._begun, begun)
        if self.resumed:
            self._seconds_before = self._log.go_on()
        self._log.open()

    @contextmanager
    def appending(self, path: Path) -> Iterator[Callable[[msgspec.Struct], None]]:
        """A function that appends records to `path`; the first one starts the stage."""
        with ExitStack() as stack:
            writer: RecordWriter | None = None

            def write(record: msgspec.Struct) -> None:
                nonlocal writer
                if writer is None:
                    self.start()
                    writer = stack.enter_context(RecordWriter(path, append=True))
                writer.write(record)

            yield write

    def keep_pictures(self, pictures: Mapping[str, bytes]) -> None:
        """Writes pictures, by name, before the tree that names them."""
        if pictures:
            self.start()
            keep_pictures(self.run.pictures, pictures)

    def finish(self, *, latest: bool = False, **fields: Any) -> StageRecord:
        """Writes the manifest entry, after which the stage counts as done.

        With `latest`, runs/latest is set to this run.
        """
        wall = self._seconds_before + time.perf_counter() - self._clock
        seconds = {"wall": wall}
        seconds |= fields.pop("seconds", {})
        outputs = [self._begun, *self.plan.outputs] if self._main else []
        record = StageRecord(
            command=self.invocation.command,
            settings=plain(self.settings),
            layers=self.invocation.layers,
            versions=versions(),
            git_commit=git_commit(),
            seed=self.settings.seed,
            inputs=self.plan.hashes,
            outputs=self.run.checksums(outputs),
            seconds={name: round(value, 3) for name, value in seconds.items()},
            started=self._started,
            finished=now(),
            **fields,
        )
        if self._main:
            self._hold()
            self.run.record_stage(self.plan.stage, record)
            if latest and not link_latest(self.run.path):
                self.progress.note(
                    f"{self.run.path.parent / 'latest'} is not a link, so that it "
                    "cannot name this run; give it another name"
                )
        return record

    def _hold(self) -> None:
        if self._main and self._lock is None:
            self._lock = RunLock(self.run.path, self._command, self._started)

    def _compare(self) -> None:
        """Refuses existing output without a flag, and a resume with other settings."""
        self._existing = [path for path in self.plan.outputs if is_there(path)]
        resume = self.invocation.resume
        if self._existing and not resume and not self.invocation.overwrite:
            remedy = "replace it with --overwrite"
            if self.plan.resumable:
                remedy = f"go on with --resume where it was interrupted, or {remedy}"
            raise UsageError(f"{self._existing[0]} exists; {remedy}")
        if resume and is_there(self._begun):
            difference = self._difference(read_json(self._begun, Begun))
            if difference:
                raise UsageError(
                    f"{self.run.path}: --resume with other {difference}; go on as "
                    "then, or use --overwrite"
                )
        elif self.resumed:
            self.progress.note(
                f"{self._begun} is missing: taking the settings to be those of "
                f"{self._existing[0]}"
            )
        if not self.done:
            self._check_trackers()

    def _difference(self, begun: Begun) -> str | None:
        """How this differs from the way the stage was begun; None if it does not.

        Inputs may have moved, but must be the same in the same order.
        """
        then, hashes = begun.settings, self.plan.hashes
        now = _unmoved(self.plan.determining, then, hashes, begun.inputs)
        difference = first_difference(then, now)
        difference = difference or self.plan.differs(begun.resolved)
        if difference:
            return f"settings than it was started with: {difference}"
        fault = other_inputs(begun.inputs, hashes)
        return f"input than it was started with: {fault}" if fault else None

    def _standing(self) -> str:
        if self.done:
            return "has ended; only what is missing or errored would be done again"
        if self._existing or is_there(self._begun):
            return "was begun and has not ended; it would go on"
        return "was not begun; it would begin"

    def _check_trackers(self) -> None:
        """Refuses trackers that could not start, if the stage uses any."""
        tracking = self.settings.tracking
        if tracking.to and self.run.tracking in self.plan.outputs:
            from agentcli.training.loop.trackers import check_trackers

            overwrite = self.invocation.overwrite
            folder = self.run.path if overwrite else self.run.tracking
            check_trackers(tracking, folder)


Perform = Callable[[PlanT, Session], Result | Coroutine[Any, Any, Result]]
"""The function that performs a plan; a coroutine if it waits for engines and models."""


def carry_out(
    plan: PlanT,
    perform: Perform[PlanT],
    invocation: Invocation,
) -> Result:
    """Performs a plan in its own session.

    Raises what Session.check and `perform` raise.
    """
    with Session(plan, invocation) as session:
        session.check()
        result = perform(plan, session)
        return asyncio.run(result) if isinstance(result, Coroutine) else result


def _unmoved(
    now: Any, then: Any, inputs: Mapping[str, str], old_inputs: Mapping[str, str]
) -> Any:
    """Settings in which what only moved is named as it was `then`.

    It is a file or a folder among the inputs (SHA-256 by path), and holds the same.
    """
    if isinstance(now, dict) and isinstance(then, dict):
        return {
            key: _unmoved(value, then.get(key), inputs, old_inputs)
            for key, value in now.items()
        }
    if isinstance(now, str) and isinstance(then, str):
        held = _held(now, inputs)
        return then if held and held == _held(then, old_inputs) else now
    return now


def _held(place: str, inputs: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of the inputs in a place, by their paths there."""
    start = Path(place)
    paths = [path for path in inputs if Path(path).is_relative_to(start)]
    return {str(Path(path).relative_to(start)): inputs[path] for path in paths}


def _delete(path: Path) -> None:
    """Removes a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def other_inputs(
    old: Mapping[str, str],
    new: Mapping[str, str],
) -> str | None:
    """The first difference of inputs (SHA-256 by path) from the old ones, in order."""
    then = list(old.values())
    now = list(new.values())
    for path, sha256 in new.items():
        if sha256 not in then:
            return f"{path} has changed" if path in old else f"{path} was not among it"
    for path, sha256 in old.items():
        if sha256 not in now:
            return f"{path} is left out"
    return None if then == now else "the order is another"
