"""What this machine has of what agentcli can use, and what to type for the rest.

One Finding per thing: the interpreter, installed packages, torch and its accelerator, programs, data, presets, space.
Only what the installed core cannot run without is `required`. Nothing is installed, made or fetched, and no world is
started: `agentcli env check` does that.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentcli.environments.alfworld.dataset import LAYOUT, list_games
from agentcli.environments.alfworld.generator import cache_root
from agentcli.environments.alfworld.options import OFFICIAL_GAMES, AlfworldOptions
from agentcli.errors import DataError
from agentcli.records.files import sha256_file
from agentcli.stages.layers import list_presets, presets_folder

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "agentcli"
GIB = 2**30
SCARCE = GIB
"""Free bytes below which a disk counts as full: one small checkpoint fits no more."""
PATIENCE = 10.0
"""Seconds that a program has to tell its version."""
SHOWN = 16
"""Hex digits of a SHA-256 that are shown."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked for. `get` is what to type for it; None where nothing is to be done."""

    name: str
    found: bool
    required: bool = False
    detail: str
    get: str | None = None


def examine_here() -> list[Finding]:
    """`examine` for this process: its environment, folder and cache of generated games."""
    return examine(os.environ, Path.cwd(), cache_root(AlfworldOptions()).parent)


def examine(environ: Mapping[str, str], here: Path, cache: Path) -> list[Finding]:
    """Everything, in the order it is shown.

    `environ` gives PATH, CXX, JAVA_HOME and ALFWORLD_DATA; `here` is the folder that runs are written to; `cache` holds
    one folder of generated games per digest. Raises nothing for what is missing or broken: that is a Finding.
    """
    return [
        *_packages(),
        *_torch(),
        _compiler(environ),
        _java(environ),
        _data(environ),
        _cache(cache),
        _presets(),
        _disk("disk here", here),
        _disk("disk cache", cache),
        _cores(),
        _memory(),
    ]


def _packages() -> list[Finding]:
    """Python and the requirements of the core and of each extra, as the installed package states them."""
    try:
        about = metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        detail = f"{PACKAGE} is imported from a folder but not installed, so its requirements are not known"
        return [Finding(name="packages", found=False, required=True, detail=detail, get=f"pip install {PACKAGE}")]
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python, wanted = platform.python_version(), about["Requires-Python"] or ""
    new_enough = SpecifierSet(wanted).contains(python, prereleases=True)
    get = None if new_enough else f"install Python {wanted} and {PACKAGE} in it"
    found = [Finding(name="python", found=new_enough, required=True, detail=python, get=get)]
    requirements = [Requirement(line) for line in about.get_all("Requires-Dist") or []]
    core = [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    found.append(_installed("core", core, f"pip install --upgrade {PACKAGE}", required=True))
    for extra in about.get_all("Provides-Extra") or []:
        added = [
            one for one in requirements if one not in core and one.marker and one.marker.evaluate({"extra": extra})
        ]
        found.append(_installed(f"extra {extra}", added, f"pip install '{PACKAGE}[{extra}]'", required=False))
    return found


def _installed(name: str, wanted: "Iterable[Requirement]", get: str, *, required: bool) -> Finding:
    """Whether every one of the requirements is installed in a version that it allows."""
    complete, texts = True, []
    for one in wanted:
        try:
            version = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            complete = False
            texts.append(f"{one.name} missing")
            continue
        fits = one.specifier.contains(version, prereleases=True)
        complete = complete and fits
        texts.append(f"{one.name} {version}" if fits else f"{one.name} {version} is not {one.specifier}")
    return Finding(name=name, found=complete, required=required, detail=", ".join(texts), get=None if complete else get)


def _torch() -> list[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return [Finding(name="torch", found=False, required=True, detail=_line(str(error)), get="pip install torch")]
    found = Finding(name="torch", found=True, required=True, detail=str(torch.__version__))
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    problem = "not available"
    try:
        if torch.cuda.is_available():
            names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
            return [found, Finding(name="accelerator", found=True, detail=f"cuda, torch {built}: {', '.join(names)}")]
    except RuntimeError as error:
        problem = f"broken: {_line(str(error))}"
    get = "to use a GPU: an NVIDIA driver, and a CUDA build of torch (https://pytorch.org/get-started/locally)"
    detail = f"cuda {problem} (torch {built}); models compute on the CPU"
    return [found, Finding(name="accelerator", found=False, detail=detail, get=get)]


def _compiler(environ: Mapping[str, str]) -> Finding:
    get = "apt-get install g++ (only to install the extra alfworld, which compiles a planner)"
    names = [environ["CXX"]] if environ.get("CXX") else ["c++", "g++", "clang++"]
    return _program("compiler", names, "--version", get, environ)


def _java(environ: Mapping[str, str]) -> Finding:
    get = "apt-get install default-jre-headless (only for worlds that run on Java; alfworld does not)"
    home = environ.get("JAVA_HOME")
    return _program("java", [str(Path(home, "bin", "java"))] if home else ["java"], "-version", get, environ)


def _program(name: str, names: list[str], switch: str, get: str, environ: Mapping[str, str]) -> Finding:
    """The first of the programs on PATH, with the first line it says of its version."""
    paths = [shutil.which(one, path=environ.get("PATH", os.defpath)) for one in names]
    path = next((one for one in paths if one), None)
    if path is None:
        return Finding(name=name, found=False, detail=f"no {', '.join(names)} on PATH", get=get)
    try:
        said = subprocess.run(
            [path, switch],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name=name, found=False, detail=f"{path} does not run: {_line(str(error))}", get=get)
    first = _line(said.stdout.strip() or said.stderr.strip())
    if said.returncode:
        return Finding(name=name, found=False, detail=f"{path} exits {said.returncode}: {first}", get=get)
    return Finding(name=name, found=True, detail=f"{path}: {first}")


def _data(environ: Mapping[str, str]) -> Finding:
    """The official ALFWorld games: how many can be played, and hashes of their ids and of the logic files."""
    name, get = "alfworld data", "alfworld-download, then export ALFWORLD_DATA=DIR (without it, games are generated)"
    named = environ.get("ALFWORLD_DATA")
    if not named:
        return Finding(name=name, found=False, detail="ALFWORLD_DATA is not set", get=get)
    folder = Path(named).expanduser()
    if not os.path.isdir(folder / LAYOUT):
        return Finding(name=name, found=False, detail=f"{folder}: no {LAYOUT}/ in it", get=get)
    games: dict[str, tuple[str, ...]] = {}
    problems, hashes = [], []
    for split in OFFICIAL_GAMES:
        try:
            games[split] = list_games(folder, split)
        except (DataError, OSError) as error:
            problems.append(f"{split}: {_line(str(error))}")
    ids = "\n".join(sorted(identifier for split in games.values() for identifier in split))
    hashes.append(f"ids sha256 {hashlib.sha256(ids.encode()).hexdigest()[:SHOWN]}")
    for file in sorted((folder / "logic").glob("*")):
        try:
            hashes.append(f"logic/{file.name} sha256 {sha256_file(file)[:SHOWN]}")
        except OSError as error:
            problems.append(_line(str(error)))
    counts = ", ".join(f"{split} {len(ids)}" for split, ids in games.items())
    detail = "; ".join([str(folder), *([counts] if counts else []), *hashes, *problems])
    return Finding(name=name, found=not problems, detail=detail, get=get if problems else None)


def _cache(folder: Path) -> Finding:
    name = "generated games"
    if not os.path.isdir(folder):
        get = "agentcli env check alfworld (games are made when first played)"
        return Finding(name=name, found=False, detail=f"{folder}: none yet", get=get)
    games = size = 0
    for parent, _, files in os.walk(folder):
        games += "game.tw-pddl" in files
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(parent, file)).st_size
    return Finding(name=name, found=True, detail=f"{folder}: {games} games, {size / 2**20:.1f} MiB")


def _presets() -> Finding:
    names = [path.stem for path in list_presets()]
    if not names:
        get = f"pip install --force-reinstall {PACKAGE}"
        return Finding(name="presets", found=False, detail=f"{presets_folder()}: none", get=get)
    return Finding(name="presets", found=True, detail=", ".join(names))


def _disk(name: str, folder: Path) -> Finding:
    """Free space where `folder` is, or would be made."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.isdir(one))
    usage = shutil.disk_usage(there)
    enough = usage.free >= SCARCE
    get = None if enough else f"free some space: less than {SCARCE / GIB:.0f} GiB is left"
    detail = f"{folder}: {usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    return Finding(name=name, found=enough, detail=detail, get=get)


def _cores() -> Finding:
    return Finding(name="cores", found=True, detail=f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}")


def _memory() -> Finding:
    page = os.sysconf("SC_PAGE_SIZE")
    free, total = (os.sysconf(name) * page / GIB for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
    return Finding(name="memory", found=True, detail=f"{total:.1f} GiB, {free:.1f} GiB of it unused")


def _line(text: str) -> str:
    """The first line."""
    return text.splitlines()[0] if text else "says nothing"
