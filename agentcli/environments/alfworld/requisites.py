"""ALFWorld's requisites as this machine has them: the official games, and the games
that were generated.
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from agentcli.environments.alfworld.dataset import LAYOUT, list_games
from agentcli.environments.alfworld.options import OFFICIAL_GAMES
from agentcli.environments.protocol import Requisite
from agentcli.errors import DataError
from agentcli.records.files import sha256_file

SHOWN = 16
"""Hex digits of a SHA-256 that are shown."""
DOWNLOAD = (
    "alfworld-download, then export ALFWORLD_DATA=DIR (without it, games are generated)"
)
GENERATE = "agentcli env check alfworld (games are made when first played)"


def official_games(environ: Mapping[str, str]) -> Requisite:
    """The official data set: how many games can be played, and hashes of their ids and
    of the logic files.
    """
    name = "alfworld data"
    named = environ.get("ALFWORLD_DATA")
    if not named:
        return Requisite(
            name=name, found=False, detail="ALFWORLD_DATA is not set", get=DOWNLOAD
        )
    folder = Path(named).expanduser()
    if not os.path.isdir(folder / LAYOUT):
        return Requisite(
            name=name, found=False, detail=f"{folder}: no {LAYOUT}/ in it", get=DOWNLOAD
        )
    problems: list[str] = []
    games = _games(folder, problems)
    counts = ", ".join(f"{split} {len(ids)}" for split, ids in games.items())
    all_ids = "\n".join(
        sorted(identifier for ids in games.values() for identifier in ids)
    )
    parts = [str(folder)]
    if counts:
        parts.append(counts)
    parts.append(f"ids sha256 {hashlib.sha256(all_ids.encode()).hexdigest()[:SHOWN]}")
    parts += _logic_hashes(folder, problems)
    return Requisite(
        name=name,
        found=not problems,
        detail="; ".join([*parts, *problems]),
        get=DOWNLOAD if problems else None,
    )


def generated_games(folder: Path) -> Requisite:
    """The number of games that were generated into `folder`, and their size on disk."""
    name = "generated games"
    if not os.path.isdir(folder):
        return Requisite(
            name=name, found=False, detail=f"{folder}: none yet", get=GENERATE
        )
    games = 0
    size = 0
    for parent, _, files in os.walk(folder):
        games += "game.tw-pddl" in files
        for file in files:
            # Another process may be making games, and remove its temporary files.
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(parent, file)).st_size
    return Requisite(
        name=name, found=True, detail=f"{folder}: {games} games, {size / 2**20:.1f} MiB"
    )


def _games(folder: Path, problems: list[str]) -> dict[str, tuple[str, ...]]:
    """The ids of the playable games by split. Splits that cannot be read are added to
    `problems`.
    """
    games = {}
    for split in OFFICIAL_GAMES:
        try:
            games[split] = list_games(folder, split)
        except (DataError, OSError) as error:
            problems.append(f"{split}: {error}")
    return games


def _logic_hashes(folder: Path, problems: list[str]) -> list[str]:
    hashes = []
    for file in sorted((folder / "logic").glob("*")):
        try:
            hashes.append(f"logic/{file.name} sha256 {sha256_file(file)[:SHOWN]}")
        except OSError as error:
            problems.append(str(error))
    return hashes
