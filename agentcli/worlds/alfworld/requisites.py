"""ALFWorld's games on this machine: the official ones, and the generated ones."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentcli.environments.protocol import Requisite
from agentcli.errors import DataError
from agentcli.records.files import sha256_file
from agentcli.worlds.alfworld.dataset import LAYOUT, list_games
from agentcli.worlds.alfworld.options import OFFICIAL_GAMES

SHOWN = 16
"""Hex digits of a SHA-256 that are shown."""
DOWNLOAD = (
    "alfworld-download, then export ALFWORLD_DATA=DIR (without it, games are generated)"
)
GENERATE = "agentcli env check alfworld (games are made when first played)"


def official_games(environ: Mapping[str, str]) -> Requisite:
    """The official data set: numbers of games, hashes of ids and logic files."""
    named = environ.get("ALFWORLD_DATA")
    if not named:
        return _no_data("ALFWORLD_DATA is not set")
    folder = Path(named).expanduser()
    if not os.path.isdir(folder / LAYOUT):
        return _no_data(f"{folder}: no {LAYOUT}/ in it")
    counts = []
    all_ids: list[str] = []
    problems = []
    for split in OFFICIAL_GAMES:
        try:
            ids = list_games(folder, split)
        except (DataError, OSError) as error:
            problems.append(f"{split}: {error}")
        else:
            counts.append(f"{split} {len(ids)}")
            all_ids += ids
    digest = hashlib.sha256("\n".join(sorted(all_ids)).encode()).hexdigest()
    details = [str(folder)]
    if counts:
        details.append(", ".join(counts))
    details.append(f"ids sha256 {digest[:SHOWN]}")
    for file in sorted((folder / "logic").glob("*")):
        try:
            details.append(f"logic/{file.name} sha256 {sha256_file(file)[:SHOWN]}")
        except OSError as error:
            problems.append(str(error))
    return Requisite(
        name="alfworld data",
        present=not problems,
        detail="; ".join(details + problems),
        get=DOWNLOAD if problems else None,
    )


def _no_data(reason: str) -> Requisite:
    return Requisite(
        name="alfworld data",
        present=False,
        detail=reason,
        get=DOWNLOAD,
    )


def generated_games(folder: Path) -> Requisite:
    """The number of games that were generated into `folder`, and their size on disk."""
    name = "generated games"
    if not os.path.isdir(folder):
        detail = f"{folder}: none yet"
        return Requisite(
            name=name,
            present=False,
            detail=detail,
            get=GENERATE,
        )
    files = list(_files(folder))
    games = sum(file.name == "game.tw-pddl" for file in files)
    size = 0
    for file in files:
        # Another process may be making games, and remove its temporary files.
        with contextlib.suppress(FileNotFoundError):
            size += file.lstat().st_size
    detail = f"{folder}: {games} games, {size / 2**20:.1f} MiB"
    return Requisite(
        name=name,
        present=True,
        detail=detail,
    )


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)
