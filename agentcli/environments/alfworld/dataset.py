"""The official ALFWorld data set, read unchanged from its own layout.

`<data>/json_2.1.1/<split>/<type>-<Object>-<MovableRecep|None>-<Recep>-<scene>/trial_*/{traj_data.json,
game.tw-pddl}`. Which games count is decided as in alfworld's own loader: not those with
movable receptacles or slicing, not those without a game file, not those that are not
marked solvable. Order never comes from the file system.
"""

import os
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.alfworld.draw import parse_name
from agentcli.environments.alfworld.options import KINDS
from agentcli.errors import DataError

LAYOUT = "json_2.1.1"


class _Header(msgspec.Struct):
    solvable: bool | None = None


_HEADER = msgspec.json.Decoder(_Header)


def data_folder(setting: str | None) -> Path | None:
    """The data set to read: `setting`, else $ALFWORLD_DATA, else None (games are
    generated).

    Raises DataError for a folder without json_2.1.1. The empty default folder that
    `import alfworld` makes, and names in the variable, does not count as a choice.
    """
    variable = os.environ.get("ALFWORLD_DATA")
    named = setting or variable
    if not named:
        return None
    folder = Path(named).expanduser()
    if (folder / LAYOUT).is_dir():
        return folder
    if not setting and folder == Path("~/.cache/alfworld").expanduser():
        return None
    source = "--data" if setting else "ALFWORLD_DATA"
    raise DataError(
        f"{source} {folder}: no {LAYOUT}/ in it; name the folder that holds it, or "
        "leave it out for generated games"
    )


@lru_cache(maxsize=16)
def list_games(folder: Path, split: str) -> tuple[str, ...]:
    """Ids (paths below json_2.1.1) of a split's games, sorted. Raises DataError when
    there is none.
    """
    ids = [
        f"{split}/{task.name}/{trial.name}"
        for task in _folders(folder / LAYOUT / split)
        if "movable" not in task.name and "Sliced" not in task.name
        for trial in _folders(Path(task.path))
        if _playable(Path(trial.path))
    ]
    if not ids:
        raise DataError(
            f"{folder / LAYOUT / split}: no solvable game.tw-pddl beside a "
            "traj_data.json; run alfworld-download"
        )
    for identifier in ids:
        _check(folder, identifier)
    return tuple(sorted(ids))


def _folders(path: Path) -> list[os.DirEntry[str]]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return [entry for entry in entries if entry.is_dir()]


def _playable(trial: Path) -> bool:
    game = trial / "game.tw-pddl"
    if not (trial / "traj_data.json").exists() or not game.exists():
        return False
    try:
        return bool(_HEADER.decode(game.read_bytes()).solvable)
    except (msgspec.DecodeError, OSError) as error:
        raise DataError(f"{game}: {error}") from error


def _check(folder: Path, identifier: str) -> None:
    name = identifier.split("/")[1]
    try:
        known = parse_name(name).kind in KINDS
    except ValueError:
        known = False
    if not known:
        raise DataError(
            f"{folder / LAYOUT / identifier}: not named "
            "<type>-<Object>-None-<Recep>-<scene>"
        )
