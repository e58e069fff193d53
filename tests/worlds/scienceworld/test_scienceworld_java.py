"""Java that is missing, too old or broken: one line that says what to do, from doctor and from the engine."""

from pathlib import Path

import pytest
from agentcli.worlds.scienceworld.simulator import Simulator
from agentcli.worlds.scienceworld.world import ScienceWorldWorld
from refusal import refused


def home_of(folder: Path, script: str) -> str:
    """A JAVA_HOME whose java is this script."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("script", ["echo 'openjdk version \"1.8.0_392\"' >&2; exit 0", "exit 3", "echo nothing"])
def test_a_java_that_cannot_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    home = home_of(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", home)
    refused(lambda: Simulator(256), code=4, names=f"{home}/bin/java", remedy="JAVA_HOME=DIR")
    (row,) = ScienceWorldWorld.requisites({"JAVA_HOME": home})
    assert not row.present
    assert row.get


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(lambda: Simulator(256), code=4, names="java", remedy="JAVA_HOME=DIR")
    (row,) = ScienceWorldWorld.requisites({"PATH": str(tmp_path)})
    assert not row.present


def test_the_java_of_this_machine() -> None:
    import os

    (row,) = ScienceWorldWorld.requisites(os.environ)
    assert row.present
    assert row.get is None
