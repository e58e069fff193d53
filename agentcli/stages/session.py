"""What every stage does around its work: refuse or accept existing output, remember the settings it started with, and
write its manifest entry last.

Nothing is written, and nothing that --overwrite gives up is deleted, before there is something to write: a stage that
fails on its inputs leaves the run as it was.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import UsageError
from agentcli.records.files import RecordWriter, read_json, write_json
from agentcli.records.runs import RunDirectory, git_commit, hash_inputs, now, versions
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages.progress import Progress, Silent

SPEED_ONLY = {
    "environment": ("processes", "deadline_seconds"),
    "policy": ("batch_rows", "linger_ms"),
    "rollout": ("concurrency",),
}
"""Settings that change how fast a result comes, not the result: a resumed stage may change them."""


@dataclass(frozen=True)
class Invocation:
    """How a stage was asked for: the command line for the manifest, what to do with output that exists, whom to tell."""

    command: list[str]
    resume: bool = False
    overwrite: bool = False
    progress: Progress = field(default_factory=Silent)


class Session:
    """One stage at work in one run directory. `sections` are the settings that determine its output."""

    def __init__(
        self, name: str, run: RunDirectory, settings: Settings, invocation: Invocation, sections: tuple[str, ...]
    ) -> None:
        self.name, self.run, self.settings, self.invocation = name, run, settings, invocation
        self._sections = ("seed", *sections)
        self._started, self._clock = now(), time.perf_counter()
        self._replaced: list[Path] = []
        self._begun = run.path / "settings" / f"{name.replace('/', '-')}.json"

    def check(self, outputs: list[Path], *, resumable: bool = False) -> bool:
        """Whether earlier output is to be continued.

        Raises UsageError when output exists and neither flag is given, when both are, or when a resumed stage was
        started with other settings (the first difference is named).
        """
        resume, overwrite = self.invocation.resume, self.invocation.overwrite
        if resume and overwrite:
            raise UsageError("--resume and --overwrite exclude each other; give one of them")
        existing = [path for path in outputs if path.exists()]
        if existing and not resume and not overwrite:
            instead = "go on with --resume, or " if resumable else ""
            raise UsageError(f"{existing[0]} exists; {instead}replace it with --overwrite")
        if resume and self._begun.exists():
            difference = _difference(read_json(self._begun, dict), self._determining(), "")
            if difference:
                raise UsageError(
                    f"{self.run.path}: --resume with other settings than it was started with: {difference}"
                )
        self._replaced = existing if overwrite else []
        return bool(resume and existing)

    def start(self) -> None:
        """The first output is about to be written: the stage no longer counts as done, what is replaced is deleted, and the
        settings are kept for --resume."""
        self.run.forget_stage(self.name)
        for path in self._replaced:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        write_json(self._begun, self._determining())

    @contextmanager
    def appending(self, path: Path) -> Iterator[Callable[[msgspec.Struct], None]]:
        """A function that appends records to `path`; the stage starts with the first of them."""
        with ExitStack() as stack:
            writer: RecordWriter | None = None

            def write(record: msgspec.Struct) -> None:
                nonlocal writer
                if writer is None:
                    self.start()
                    writer = stack.enter_context(RecordWriter(path, append=True))
                writer.write(record)

            yield write

    def finish(self, inputs: list[Path] | None = None, **fields: Any) -> StageRecord:
        """Write the manifest entry: this is what makes the stage count as done."""
        seconds = {"wall": time.perf_counter() - self._clock, **fields.pop("seconds", {})}
        record = StageRecord(
            command=self.invocation.command,
            settings=_plain(self.settings),
            versions=versions(),
            git_commit=git_commit(),
            seed=self.settings.seed,
            inputs=hash_inputs(inputs or []),
            seconds={name: round(value, 3) for name, value in seconds.items()},
            started=self._started,
            finished=now(),
            **fields,
        )
        self.run.record_stage(self.name, record)
        return record

    def _determining(self) -> dict[str, Any]:
        values = {name: _plain(getattr(self.settings, name)) for name in self._sections}
        for section, names in SPEED_ONLY.items():
            for name in names:
                if section in values:
                    values[section].pop(name)
        return values


@contextmanager
def rewriting(path: Path) -> Iterator[RecordWriter]:
    """A writer whose records replace those of `path` at the end; when the block raises, `path` stays as it was."""
    part = path.with_name(path.name + ".part")
    try:
        with RecordWriter(part) as writer:
            yield writer
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    """As it comes back from a file: mappings, lists and scalars only."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _difference(old: Any, new: Any, path: str) -> str | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            found = _difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return None
    return None if old == new else f"{path} was {old!r}, now {new!r}"
