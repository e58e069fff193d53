"""Temporary folders: those of killed processes go with the next start, those of living ones and of others stay."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agentcli.records.scratch import LOCK, ScratchFolder, publish, sweep
from processes import as_here

HOLDING = (
    "from agentcli.records.scratch import ScratchFolder\nheld = ScratchFolder()\nprint(held.name, flush=True)\ninput()"
)


@pytest.fixture(autouse=True)
def _as_a_new_process() -> None:
    sweep.cache_clear()


@contextmanager
def another_process(place: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that holds a temporary folder in `place`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLDING], env={**as_here(), "TMPDIR": str(place)}, **pipes) as process:
        folder = Path(process.stdout.readline().strip())
        (folder / "content").write_text("some")
        yield process, folder
        process.kill()


def test_a_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    with another_process(tmp_path) as (killed, left), another_process(tmp_path) as (_, held):
        killed.kill()
        killed.wait()
        assert (left / "content").exists()
        with ScratchFolder(tmp_path) as here:
            assert set(tmp_path.iterdir()) == {Path(here), held}
            sweep.cache_clear()
            sweep(tmp_path)
            assert set(tmp_path.iterdir()) == {Path(here), held}
        assert (held / "content").exists()
        assert not Path(here).exists()


def test_what_others_made_is_left_alone(tmp_path: Path) -> None:
    """A folder of the user, one of a run, a link to a dead folder, and a lock that is a link."""
    dead = tmp_path / "elsewhere"
    for name in ("elsewhere", "tmp/agentcli-mine", "tmp/agentcli-run", "tmp/agentcli-linked"):
        (tmp_path / name).mkdir(parents=True)
    (dead / LOCK).touch()
    (tmp_path / "tmp/agentcli-run/.lock").touch()
    (tmp_path / "tmp/agentcli-link").symlink_to(dead)
    (tmp_path / "tmp/agentcli-linked" / LOCK).symlink_to(dead / LOCK)
    (tmp_path / "tmp/agentcli-file").touch()
    before = set(tmp_path.rglob("*"))
    sweep(tmp_path / "tmp")
    assert set(tmp_path.rglob("*")) == before


def test_a_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with another_process(tmp_path) as (killed, left):
        killed.kill()
        killed.wait()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sweep(tmp_path)
    assert left.exists()


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def break_off(new: Path) -> None:
        (new / "part").touch()
        raise RuntimeError

    def write(new: Path) -> None:
        (new / "whole").touch()

    with pytest.raises(RuntimeError):
        publish(tmp_path / "made", break_off, tmp_path / "partial")
    assert not (tmp_path / "made").exists()
    publish(tmp_path / "made", write, tmp_path / "partial")
    publish(tmp_path / "made", lambda new: (new / "second").touch(), tmp_path / "partial")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["whole"], "the first one stays"
    assert list((tmp_path / "partial").iterdir()) == []
