"""The official ALFWorld data set, read unchanged from its own layout.

`<data>/json_2.1.1/<split>/<type>-<Object>-<MovableRecep|None>-<Recep>-<scene>/trial_*/`
holds a traj_data.json and a game.tw-pddl. Which games count is decided as in alfworld's
own loader: none with movable receptacles or slicing, none without a game file, none
that is not marked solvable. Order never comes from the file system.
"""

import contextlib
import hashlib
import itertools
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.protocol import Requisite
from agentcli.errors import DataError
from agentcli.records.files import sha256_file
from agentcli.records.regular import read_regular
from agentcli.worlds.alfworld.draw import parse_name
from agentcli.worlds.alfworld.options import KINDS, OFFICIAL_GAMES

LAYOUT = "json_2.1.1"


class _Header(msgspec.Struct):
    solvable: bool | None = None


_HEADER = msgspec.json.Decoder(_Header)


def data_folder(setting: str | None) -> Path | None:
    """The data set to read: `setting`, else $ALFWORLD_DATA, else None.

    Raises DataError for a folder without json_2.1.1.
    """
    named = setting or os.environ.get("ALFWORLD_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if (folder / LAYOUT).is_dir():
        return folder
    # `import alfworld` makes this folder, empty, and names it in the variable: the
    # user did not choose it.
    if not setting and folder == Path("~/.cache/alfworld").expanduser():
        return None
    source = "--data" if setting else "ALFWORLD_DATA"
    raise DataError(
        f"{source} {folder}: no {LAYOUT}/ in it; name the folder that holds it, or "
        "leave it out for generated games"
    )


def game_file(data: Path, task_id: str) -> Path:
    """The path of a game in a data set."""
    return data / LAYOUT / task_id / "game.tw-pddl"


@lru_cache(maxsize=16)
def list_games(data: Path, split: str) -> tuple[str, ...]:
    """Ids (paths below json_2.1.1) of a split's games, sorted.

    Raises DataError when there is none, and for a folder of another name.
    """
    root = data / LAYOUT / split
    ids = []
    for task in _folders(root):
        # The games that alfworld's loader leaves out too.
        if "movable" in task.name or "Sliced" in task.name:
            continue
        trials = [trial for trial in _folders(task) if _playable(trial)]
        if trials:
            _check_name(task)
        ids += [f"{split}/{task.name}/{trial.name}" for trial in trials]
    if not ids:
        raise DataError(
            f"{root}: no solvable game.tw-pddl beside a traj_data.json; run "
            "alfworld-download"
        )
    return tuple(sorted(ids))


def _folders(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    # scandir tells folders from files without a stat of every entry.
    with os.scandir(path) as entries:
        return [path / entry.name for entry in entries if entry.is_dir()]


def _playable(trial: Path) -> bool:
    game = trial / "game.tw-pddl"
    if not (trial / "traj_data.json").exists() or not game.exists():
        return False
    try:
        return bool(_HEADER.decode(read_regular(game)).solvable)
    except msgspec.DecodeError as error:
        raise DataError(f"{game}: {error}") from error


def _check_name(task: Path) -> None:
    try:
        known = parse_name(task.name).kind in KINDS
    except ValueError:
        known = False
    if not known:
        raise DataError(f"{task}: not named <type>-<Object>-None-<Recep>-<scene>")


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
    try:
        games = {split: list_games(folder, split) for split in OFFICIAL_GAMES}
        logic = [
            f"logic/{file.name} sha256 {sha256_file(file)[:SHOWN]}"
            for file in sorted((folder / "logic").glob("*"))
        ]
    except (DataError, OSError) as error:
        return _no_data(str(error))
    counts = [f"{split} {len(ids)}" for split, ids in games.items()]
    # Two data sets with these digests list the same games under the same rules.
    all_ids = "\n".join(sorted(itertools.chain(*games.values())))
    digest = hashlib.sha256(all_ids.encode()).hexdigest()
    details = [str(folder), ", ".join(counts), f"ids sha256 {digest[:SHOWN]}", *logic]
    return Requisite(name="alfworld data", present=True, detail="; ".join(details))


def _no_data(reason: str) -> Requisite:
    return Requisite(name="alfworld data", present=False, detail=reason, get=DOWNLOAD)


def generated_games(folder: Path) -> Requisite:
    """The number of games that were generated into `folder`, and their size on disk."""
    name = "generated games"
    if not os.path.isdir(folder):
        detail = f"{folder}: none yet"
        return Requisite(name=name, present=False, detail=detail, get=GENERATE)
    walk = os.walk(folder)
    files = [Path(parent, name) for parent, _, names in walk for name in names]
    games = sum(file.name == "game.tw-pddl" for file in files)
    size = 0
    for file in files:
        # Another process may be making games, and remove its temporary files.
        with contextlib.suppress(FileNotFoundError):
            size += file.lstat().st_size
    mib = size / 2**20
    detail = f"{folder}: {games} games, {mib:.1f} MiB"
    return Requisite(name=name, present=True, detail=detail)
