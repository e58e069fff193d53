"""doctor: what agentcli can use on this machine, and what to type for the rest.

It reports one Finding each for the interpreter, installed packages, torch and its
accelerator, programs, what each world looks for, presets, and disk space. Only what the
core cannot run without is `required`. It installs, creates and downloads nothing, and
starts no engine: `agentcli env check` does that.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentcli.environments.protocol import Inspected
from agentcli.environments.registry import REGISTRY
from agentcli.errors import UsageError
from agentcli.records.free_memory import free_memory
from agentcli.requirements import CORE, PACKAGE, requirements
from agentcli.version import __version__

if TYPE_CHECKING:
    from packaging.requirements import Requirement

GIB = 2**30
SCARCE = GIB
"""Free bytes below which a disk counts as full: one small checkpoint fits no more."""
PATIENCE = 10.0
"""Seconds that a program has to report its version."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked for."""

    name: str
    present: bool
    required: bool = False
    detail: str
    get: str | None = None
    """The command that installs it; None if there is nothing to do."""


def _row(
    name: str, detail: str, get: str | None = None, *, required: bool = False
) -> Finding:
    """What was looked for: it is here unless there is something to get."""
    present = get is None
    return Finding(
        name=name, present=present, required=required, detail=detail, get=get
    )


def examine(environ: Mapping[str, str], here: Path) -> list[Finding]:
    """All findings, in the order they are shown.

    Raises nothing for what is missing or broken: that is a Finding. `environ` gives
    PATH, CXX and what worlds look for; `here` is the folder that runs are
    written to.
    """
    worlds, caches = _worlds(environ)
    return [
        *_packages(),
        *_torch(),
        _compiler(environ),
        *worlds,
        _presets(),
        *_machine(here, caches),
    ]


def issue(findings: Iterable[Finding], environ: Mapping[str, str], here: Path) -> str:
    """The findings in Markdown, to paste into a report that everybody can read.

    A path that a variable of `environ` holds, such as the home folder, is named by its
    variable, and the folder `here` by a dot: they may name people and projects.
    """
    lines = [f"{PACKAGE} {__version__}, {platform.platform()}", "", "```text"]
    for finding in findings:
        here_or_not = "here" if finding.present else "not here"
        lines.append(f"{finding.name} ({here_or_not}): {finding.detail}")
    text = "\n".join([*lines, "```"])
    places = {os.path.expanduser("~"): "$HOME"}
    for name, value in environ.items():
        # PATH is a list of folders, and a folder may end with a slash.
        for folder in value.split(os.pathsep):
            places.setdefault(folder.rstrip("/"), f"${name}")
    places[str(here)] = "."
    # The longest first: the home folder begins many of the others.
    for place in sorted(places, key=len, reverse=True):
        if place.startswith("/") and len(place) > 1:
            # Not where the name goes on: /home/ann does not stand in /home/anna.
            text = re.sub(rf"{re.escape(place)}(?![\w.-])", places[place], text)
    return text


def _packages() -> list[Finding]:
    """Python, and the stated requirements of the core and of each extra."""
    try:
        wanted = requirements()
    except metadata.PackageNotFoundError:
        detail = (
            f"{PACKAGE} is imported from a folder but not installed, so its "
            "requirements are not known"
        )
        return [_row("packages", detail, f"pip install {PACKAGE}", required=True)]
    core = wanted.pop(CORE)
    findings = [_python(metadata.metadata(PACKAGE)["Requires-Python"] or "")]
    get = f"pip install --upgrade {PACKAGE}"
    findings.append(_installed("core", core, get, required=True))
    for extra, added in wanted.items():
        get = f"pip install '{PACKAGE}[{extra}]'"
        findings.append(_installed(f"extra {extra}", added, get, required=False))
    return findings


def _python(wanted: str) -> Finding:
    from packaging.specifiers import SpecifierSet

    version = platform.python_version()
    new_enough = SpecifierSet(wanted).contains(version, prereleases=True)
    get = None if new_enough else f"install Python {wanted} and {PACKAGE} in it"
    return _row("python", version, get, required=True)


def _installed(
    name: str, wanted: "Iterable[Requirement]", get: str, *, required: bool
) -> Finding:
    """Whether every requirement is installed in a version that it allows."""
    complete = True
    texts = []
    for one in wanted:
        try:
            version = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            complete = False
            texts.append(f"{one.name} missing")
            continue
        if one.specifier.contains(version, prereleases=True):
            texts.append(f"{one.name} {version}")
        else:
            complete = False
            texts.append(f"{one.name} {version} is not {one.specifier}")
    detail = ", ".join(texts)
    return _row(name, detail, None if complete else get, required=required)


def _torch() -> list[Finding]:
    """torch, and the accelerator that it computes on."""
    try:
        import torch
    # A torch whose shared libraries do not load raises OSError.
    except (ImportError, OSError) as error:
        detail = _first_line(str(error))
        return [_row("torch", detail, "pip install torch", required=True)]
    version = str(torch.__version__)
    return [_row("torch", version, required=True), _accelerator()]


def _accelerator() -> Finding:
    """The GPU as torch sees it."""
    import torch

    cuda = torch.version.cuda
    built = f"built for CUDA {cuda}" if cuda else "built without CUDA"
    problem = "not available"
    try:
        if torch.cuda.is_available():
            indices = range(torch.cuda.device_count())
            names = ", ".join(map(torch.cuda.get_device_name, indices))
            return _row("accelerator", f"cuda, torch {built}: {names}")
        if torch.backends.mps.is_available():
            return _row("accelerator", "mps, Apple's GPU")
    except RuntimeError as error:
        problem = f"broken: {_first_line(str(error))}"
    return _row(
        "accelerator",
        f"cuda {problem} (torch {built}); models compute on the CPU",
        "to use a GPU: an NVIDIA driver, and a CUDA build of torch "
        "(https://pytorch.org/get-started/locally)",
    )


def _compiler(environ: Mapping[str, str]) -> Finding:
    """The first C++ compiler on PATH, with the first line of its version."""
    get = "apt-get install g++ (only to install extras that compile a part of theirs)"
    names = ["c++", "g++", "clang++"]
    if environ.get("CXX"):
        names = [environ["CXX"]]
    search = environ.get("PATH", os.defpath)
    paths = (shutil.which(one, path=search) for one in names)
    path = next(filter(None, paths), None)
    if path is None:
        return _row("compiler", f"no {', '.join(names)} on PATH", get)
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        detail = f"{path} does not run: {_first_line(str(error))}"
        return _row("compiler", detail, get)
    # Some programs print their version on stderr.
    version = _first_line(answer.stdout.strip() or answer.stderr.strip())
    if answer.returncode:
        return _row("compiler", f"{path} exits {answer.returncode}: {version}", get)
    return _row("compiler", f"{path}: {version}")


def _worlds(environ: Mapping[str, str]) -> tuple[list[Finding], list[Path]]:
    """What the worlds look for, and the folders where they cache files."""
    findings: list[Finding] = []
    caches: list[Path] = []
    for name in REGISTRY.names():
        try:
            world = REGISTRY.load(name)
        except (ImportError, AttributeError, UsageError) as error:
            detail = f"{REGISTRY.place(name)}: {_first_line(str(error))}"
            get = f"install what the world {name} imports"
            findings.append(_row(f"world {name}", detail, get))
            continue
        if isinstance(world, Inspected):
            for requisite in world.requisites(environ):
                findings.append(Finding(**msgspec.structs.asdict(requisite)))
            cache = world.cache_folder(environ)
            if cache is not None:
                caches.append(cache)
    return findings, caches


def _presets() -> Finding:
    get = f"pip install --force-reinstall {PACKAGE}"
    try:
        from agentcli.stages.layers import list_presets, presets_folder
    except ImportError as error:
        return _row("presets", _first_line(str(error)), get)
    names = [path.stem for path in list_presets()]
    if names:
        return _row("presets", ", ".join(names))
    return _row("presets", f"{presets_folder()}: none", get)


def _machine(here: Path, caches: list[Path]) -> list[Finding]:
    """Free space here and where worlds cache files (one row), cores and memory."""
    rows = [_disk("disk here", here)]
    if caches:
        common = os.path.commonpath(caches)
        rows.append(_disk("disk cache", Path(common)))
    # Containers and batch systems allow fewer than there are.
    # macOS does not say.
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count()
    free = free_memory() / GIB
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    return [
        *rows,
        _row("cores", f"{usable} usable of {os.cpu_count()}"),
        _row("memory", f"{total:.1f} GiB, {free:.1f} GiB of it free"),
    ]


def _disk(name: str, folder: Path) -> Finding:
    """Free space where `folder` is, or would be made."""
    folders = (folder, *folder.absolute().parents)
    existing = next(filter(os.path.isdir, folders))
    usage = shutil.disk_usage(existing)
    detail = f"{folder}: {usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    get = None
    if usage.free < SCARCE:
        get = f"free some space: less than {SCARCE / GIB:.0f} GiB is left"
    return _row(name, detail, get)


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "says nothing"
