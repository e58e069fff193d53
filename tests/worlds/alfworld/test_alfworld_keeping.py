"""Where the world cannot keep its files, it says which folder has no room and how to name another."""

import errno
import os
import resource
import tempfile
from pathlib import Path

import pytest
from agentcli.environments.cache import Cache, keeping
from agentcli.worlds.alfworld.engine import FastEngine
from agentcli.worlds.alfworld.fast import library
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401
from refusal import refusal, refused


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What is no folder."""
    path = tmp_path / "file"
    path.touch()
    return path


def test_no_place_for_games(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(file))
    world = small_world()
    refused(lambda: world.locate(world.tasks("train")[0]), 1, names=f"{file}/alfworld/", remedy="AGENTCLI_CACHE=DIR")


def test_a_full_disk_leaves_no_part_of_a_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(tmp_path))
    world = small_world()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        refused(lambda: world.locate(world.tasks("train")[0]), 1, str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert world.locate(world.tasks("train")[0]).is_file()


def test_no_place_for_translations_is_not_the_games_fault(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTCLI_CACHE", str(tmp_path / "a game that no other test has opened in this process"))
    world = small_world()
    engine = FastEngine(world.locate, file)
    refused(lambda: engine.start(some_of_each_kind(world, 1)[0]), 1, str(file), remedy="AGENTCLI_CACHE=DIR")


def test_no_place_for_a_copy_of_the_planner(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(file))
    refused(library.Planner, 1, str(file), remedy="TMPDIR=DIR")


def test_a_planner_that_cannot_be_loaded_from_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_library_path", lambda: file)
    with refusal(4, "libdownward.so", "TMPDIR=DIR"):
        library.Planner()


def test_want_of_memory_is_not_want_of_room(tmp_path: Path) -> None:
    with pytest.raises(MemoryError), keeping(tmp_path, "TMPDIR"):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")


def test_a_pipe_in_the_place_of_a_translation_keeps_nobody_waiting(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(str, ("x",), lambda: "built") == "built"
    (kept,) = tmp_path.rglob("*.zst")
    kept.unlink()
    os.mkfifo(kept)
    with refusal(1, remedy="AGENTCLI_CACHE=DIR"):
        cache.get(str, ("x",), lambda: "built")
