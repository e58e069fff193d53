"""A run directory: its paths, its manifest, and the lock of whoever writes to it.

A stage removes its manifest entry, writes its files, and writes its entry last,
atomically. So a manifest that names a stage guarantees that the stage's output is
complete, and its checksums are those of the files.
"""

import fcntl
import hashlib
import io
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError, UsageError, word_of
from agentcli.records.checksums import MANIFEST, checksums
from agentcli.records.files import part_of, read_json, sha256_file, write_json, writing
from agentcli.records.regular import is_there, open_regular, refuse_irregular
from agentcli.records.types import Manifest, StageRecord
from agentcli.requirements import PACKAGE, requirements
from agentcli.version import __version__

BYSTANDERS = ("docs", "mlflow", "notebooks", "plots", "pytest", "test", "trackers")
"""Extras that no result depends on."""
LOCK = ".lock"
"""The file in a run that the process that writes to it keeps locked (flock).

The kernel releases the lock when its holder is killed, so a file that is left behind
locks nothing; it only says who holds the lock. Readers need no lock: every file appears
complete or grows by complete lines. The package filelock falls back to the existence of
a file where there is no flock, and a killed process leaves that behind for good.
"""


def credit_name(method: str) -> str:
    """The name of a method's credit file: the method's name, or its function's.

    A method may also be given as folder/file.py:function or module:function. If the
    function is called `assign`, the name of its file is used.
    """
    place, colon, function = method.rpartition(":")
    if not colon or function != "assign":
        return function
    return Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]


GROWN_BY = ("rollout", "demos")
"""Stages that write trees.jsonl and count its trees."""
GIVEN_BY = ("import", "annotate")
"""Stages that write trees.jsonl from other files."""
TRAINED_BY = ("sft", "train")
"""Stages that write checkpoint/ at once."""


class RunDirectory:
    """The paths in one run directory; creating this object touches no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest_path = path / MANIFEST
        self.trees = path / "trees.jsonl"
        self.seconds = path / "seconds.jsonl"
        self.pictures = path / "pictures"
        self.checkpoint = path / "checkpoint"
        self.best = path / "best"
        self.critic = path / "critic"
        self.optimizer = path / "optimizer.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.snapshot = path / "snapshot"
        self.tracking = path / "tracking"

    def begun(self, stage: str) -> Path:
        """The settings with which a stage was begun: settings/<stage>.json."""
        return self.path / "settings" / f"{stage.replace('/', '-')}.json"

    @property
    def trained(self) -> list[Path]:
        """The paths that sft and train may write; a training writes them together."""
        return [
            self.checkpoint,
            self.critic,
            self.optimizer,
            self.metrics,
            self.snapshot,
            self.tracking,
        ]

    def credit(self, name: str) -> Path:
        """The credit of one method: credit/<name>.jsonl.

        Raises UsageError for a name that is not a file name.
        """
        name = credit_name(name)
        if not name or name.startswith(".") or "/" in name:
            raise UsageError(
                f"credit {name!r} is not a file name; name a credit method"
            )
        return self.path / "credit" / f"{name}.jsonl"

    @property
    def credit_files(self) -> list[Path]:
        """Every credit file, by method."""
        return sorted((self.path / "credit").glob("*.jsonl"))

    def evaluation(self, label: str) -> Path:
        """The episodes of one evaluation: evaluation/<label>.jsonl.

        The summary is the same path with suffix .json. Raises UsageError for a label
        that is not a file name.
        """
        is_name = label.isprintable() and "/" not in label
        if not label or label.startswith(".") or not is_name:
            raise UsageError(
                f"evaluation.label {label!r} is not a file name; choose one "
                "with --label NAME"
            )
        return self.path / "evaluation" / f"{label}.jsonl"

    def evaluation_trees(self, label: str) -> Path:
        """The trees of one evaluation: evaluation/trees/<label>.jsonl."""
        file = self.evaluation(label)
        return file.parent / "trees" / file.name

    def outdated(self) -> list[str]:
        """The evaluations, by label, of weights that were trained anew here since."""
        stages = self.load_manifest().stages
        trained = [stages[name].started for name in TRAINED_BY if name in stages]
        weights = self.checkpoint.resolve()
        return [
            name.removeprefix("evaluation/")
            for name, record in stages.items()
            if name.startswith("evaluation/")
            and any(record.started < started for started in trained)
            and any(weights in Path(file).resolve().parents for file in record.inputs)
        ]

    @property
    def tree_files(self) -> list[Path]:
        """Every trees file, evaluations included."""
        files = [*self.path.glob("trees.jsonl")]
        files += (self.path / "evaluation/trees").glob("*.jsonl")
        return sorted(files)

    def existing_trees(self, maker: str = "rollout") -> Path:
        """The path of trees.jsonl.

        Raises DataError that names `maker` as the command that writes one.
        """
        if is_there(self.trees):
            return self.trees
        iterations = loop_folders(self.path)
        if iterations:
            raise DataError(
                f"{self.trees}: no such file, a loop was run here; name an iteration: "
                f"{iterations[-1]}"
            )
        raise DataError(
            f"{self.trees}: no such file; write one with: agentcli {maker} -o "
            f"{word_of(self.path)}"
        )

    def existing_credit(self, name: str | None) -> Path:
        """The named credit file, or the only one in the run. Raises DataError."""
        if name is not None:
            path = self.credit(name)
            if not is_there(path):
                raise DataError(
                    f"{path}: no such file; write it with: agentcli assign-credit "
                    f"--method {name} {word_of(self.path)}"
                )
            return path
        files = self.credit_files
        if len(files) == 1:
            return files[0]
        if not files:
            raise DataError(
                f"{self.path}/credit: no credit yet; write it with: agentcli "
                f"assign-credit {word_of(self.path)}"
            )
        names = ", ".join(path.stem for path in files)
        raise UsageError(
            f"{self.path}/credit holds {names}; choose one with --credit NAME"
        )

    def other_trees(self, credit: Path) -> str | None:
        """What is wrong if the trees were replaced since this credit was assigned.

        It goes by time first: trees may be joined and cut by hand.
        """
        stages = self.load_manifest().stages
        assigned = stages.get(f"credit/{credit.stem}")
        makers = [name for name in (*GROWN_BY, *GIVEN_BY) if name in stages]
        for name in makers:
            if assigned is None or assigned.started >= stages[name].finished:
                continue
            hashes = set(hash_inputs([self.trees]).values())
            if hashes.isdisjoint(assigned.inputs.values()):
                return f"is credit of the trees that {name} has replaced since"
        return None

    def load_manifest(self) -> Manifest:
        """Reads the manifest; empty if none has been written yet."""
        # A broken link means a damaged run, not a new one.
        if not is_there(self.manifest_path):
            return Manifest()
        return read_json(self.manifest_path, Manifest)

    def record_stage(self, name: str, record: StageRecord) -> None:
        """Adds or replaces one stage's entry, atomically."""
        manifest = self.load_manifest()
        manifest.stages[name] = record
        write_json(self.manifest_path, manifest)

    def forget_stage(self, name: str, outputs: Sequence[Path] = ()) -> None:
        """Removes one stage's entry, if any: its output is about to be rewritten.

        Another stage may have written the same files: its checksums go, too.
        """
        manifest = self.load_manifest()
        changed = manifest.stages.pop(name, None) is not None
        for record in manifest.stages.values():
            for path in outputs:
                changed |= record.outputs.pop(self._name(path), None) is not None
        if changed:
            write_json(self.manifest_path, manifest)

    def checksums(self, outputs: Sequence[Path]) -> dict[str, str]:
        """The checksums of those outputs that are files, for the manifest.

        Trees and their seconds have none: they may be joined and cut by hand.
        """
        by_hand = (*self.tree_files, self.seconds)
        files = [path for path in outputs if path.is_file() and path not in by_hand]
        return {self._name(path): checksums(path) for path in files}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def forget_snapshot(self) -> None:
        """Removes the snapshot that a killed training would resume from.

        A finished training may still have one if it was killed just before this call.
        """
        shutil.rmtree(self.snapshot, ignore_errors=True)

    def finished(self, name: str) -> StageRecord | None:
        """The entry of a finished stage; None if it has not finished."""
        return self.load_manifest().stages.get(name)

    @property
    def unfinished(self) -> list[str]:
        """Stages that were begun, by the settings they wrote, and have not ended."""
        # Settings files have flat names: evaluation/L0 wrote evaluation-L0.json.
        ended = {name.replace("/", "-") for name in self.load_manifest().stages}
        begun = sorted(file.stem for file in (self.path / "settings").glob("*.json"))
        return [name for name in begun if name not in ended]

    def grown(self) -> tuple[str, StageRecord] | None:
        """The finished stage that wrote the trees, and its entry."""
        stages = self.load_manifest().stages
        for name in GROWN_BY:
            if name in stages:
                return name, stages[name]
        return None

    def lost_trees(self, held: int | None = None) -> str | None:
        """What is wrong if the stage that writes trees has not ended.

        Or if the manifest does not record `held` trees. None if all is well, or if no
        stage wrote the trees.
        """
        grown = self.grown()
        if grown is None:
            begun = [stage for stage in GROWN_BY if self.begun(stage).is_file()]
            given = any(self.finished(stage) for stage in GIVEN_BY)
            if given or not begun:
                return None
            return f"{begun[0]} has not ended; go on with: {self.resuming(begun[0])}"
        stage, record = grown
        wanted = record.counts.get("trees")
        if held is None or wanted is None or wanted == held:
            return None
        remedy = f"go on with: {self.resuming(stage)}"
        if held > wanted:
            remedy = (
                f"take the lines out that {stage} did not write, or use --overwrite"
            )
        return f"holds {held} trees, not the {wanted} of manifest.json; {remedy}"

    def resuming(self, stage: str) -> str:
        """The command that resumes a stage here."""
        return shlex.join(["agentcli", stage, "--resume", "-o", str(self.path)])


def point_to(link: Path, target: Path) -> None:
    """Makes `link` a symbolic link to `target`, atomically.

    `target` is relative to the link's folder.
    """
    temporary = part_of(link)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)


def link_latest(run: Path) -> bool:
    """Points runs/latest at this run, so that the next command finds it.

    Returns False if runs/latest exists and is not a link.
    """
    # Create no link next to a folder outside runs/, which the user chose.
    if run.absolute().parent.name != "runs":
        return True
    link = run.parent / "latest"
    if link.exists() and not link.is_symlink():
        return False
    # A new link is renamed over the old one: a reader always finds one of them.
    temporary = run.parent / f".latest.{run.name}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(run.name, target_is_directory=True)
    temporary.replace(link)
    return True


def now() -> str:
    """UTC time, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that a result may depend on.

    These are the requirements of agentcli (core and extras, for worlds and engines) and
    the packages that provide plug-ins.
    """
    installed = {PACKAGE: __version__, "python": sys.version.split()[0]}
    names: set[str] = set()
    # Imported from a bare folder, agentcli has no metadata that lists requirements.
    with suppress(metadata.PackageNotFoundError):
        for extra, needed in requirements().items():
            if extra not in BYSTANDERS:
                names.update(requirement.name for requirement in needed)
    for name in sorted(names):
        # An extra that was not asked for is not installed.
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    for distribution in metadata.distributions():
        groups = [point.group for point in distribution.entry_points]
        if any(group.startswith(f"{PACKAGE}.") for group in groups):
            installed[distribution.name] = distribution.version
    return installed


def git_commit() -> str | None:
    """The commit of the agentcli checkout in use.

    None for an installed wheel, and where git is not installed.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None


_HASHES: dict[str, str] = {}
"""SHA-256 of the files that this process has hashed, by `_state`.

A loop's stages read the same checkpoint, which may have gigabytes.
"""


def hash_inputs(paths: list[Path]) -> dict[str, str]:
    """SHA-256 of every file, by path. A directory stands for its regular files."""
    hashes = {}
    for file in _files(paths):
        # Reading says what is wrong with one that is not there.
        state = _state(file) if file.exists() else ""
        if state not in _HASHES:
            _HASHES[state] = sha256_file(file)
        hashes[str(file)] = _HASHES[state]
    return hashes


class _Hashing(io.RawIOBase):
    """A file whose SHA-256 is remembered when it has been read to its end."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        self._path = path
        self._state = _state(path)
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.raw.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        # A file that changed meanwhile is another one.
        if count == 0 and _state(self._path) == self._state:
            _HASHES[self._state] = self._digest.hexdigest()
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def open_hashed(path: Path) -> io.BufferedReader:
    """Opens a file for `hash_inputs` to know when it has been read to its end.

    So a file of many gigabytes is read once. Raises DataError, as `open_regular` does.
    """
    return io.BufferedReader(_Hashing(path), 1 << 20)


def known_hashes(paths: list[Path]) -> dict[str, str]:
    """What `hash_inputs` knows already of these, for another process."""
    states = map(_state, _files(paths))
    return {state: _HASHES[state] for state in states if state in _HASHES}


def remember_hashes(hashes: Mapping[str, str]) -> None:
    """Takes over what another process knows."""
    _HASHES.update(hashes)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.is_file())
        else:
            yield path


def _state(file: Path) -> str:
    """Which file it is, and when it was changed."""
    now = file.stat()
    return (
        f"{now.st_dev} {now.st_ino} {now.st_size} {now.st_mtime_ns} {now.st_ctime_ns}"
    )


def loop_folders(place: Path) -> list[Path]:
    """The iterations begun in a loop's folder, in order; empty if there was no loop."""
    numbered: list[tuple[int, Path]] = []
    for path in place.glob("iteration_*"):
        number = path.name.removeprefix("iteration_")
        if path.is_dir() and number.isdecimal():
            numbered.append((int(number), path))
    return [path for _, path in sorted(numbered)]


class Holder(msgspec.Struct, kw_only=True):
    """The process that writes to a run directory."""

    command: str
    process: int
    host: str
    since: str


class RunLock:
    """The lock, held from construction until `release` or the end of the process.

    Creates the directory. Raises UsageError naming the other writer if there is one.
    """

    def __init__(self, run: Path, command: str, since: str) -> None:
        with writing(run):
            run.mkdir(parents=True, exist_ok=True)
        self._path = run / LOCK
        self._descriptor = _locked(self._path)
        holder = Holder(
            command=command,
            process=os.getpid(),
            host=socket.gethostname(),
            since=since,
        )
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, msgspec.json.encode(holder) + b"\n", 0)

    def release(self) -> None:
        """Releases the lock; may be called more than once."""
        if self._descriptor >= 0:
            # While it is still locked: once released, the file could be the next
            # holder's.
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def refuse_held(run: Path) -> None:
    """Raises UsageError, as RunLock does, if another process is writing.

    Writes nothing. During the check it takes a shared lock on an existing lock file, so
    several processes can check at once.
    """
    path = run / LOCK
    refuse_irregular(path)
    with suppress(FileNotFoundError), open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _written_by_another(path) from error


def _locked(path: Path) -> int:
    """Opens and locks the file at `path`; returns its descriptor.

    The holder may remove the file after we opened it and before we lock it. Our lock
    would then protect nothing, so we try again.
    """
    refuse_irregular(path)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise _written_by_another(path) from error
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _written_by_another(path: Path) -> UsageError:
    return UsageError(
        f"{path.parent} is being written by {_holder(path)}; wait for it, or write "
        "elsewhere with -o DIR"
    )


def _holder(path: Path) -> str:
    with suppress(OSError, msgspec.DecodeError):
        holder = msgspec.json.decode(path.read_bytes(), type=Holder)
        return (
            f"`{holder.command}` (process {holder.process} on {holder.host}, since "
            f"{holder.since})"
        )
    return "another command"
