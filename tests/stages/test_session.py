"""Existing output, resumed settings, and the manifest entry that comes last."""

from pathlib import Path

import msgspec
import pytest

from agentcli.errors import UsageError
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import EnvironmentSettings, PolicySettings, Settings
from agentcli.stages.session import Invocation, Session


def session(path: Path, resume: bool = False, overwrite: bool = False, **environment: object) -> Session:
    settings = Settings(environment=EnvironmentSettings(**environment), policy=PolicySettings(model="m"))
    invocation = Invocation(["agentcli", "rollout"], resume, overwrite)
    return Session("rollout", RunDirectory(path), settings, invocation, ("environment", "policy"))


def test_output_is_neither_replaced_nor_continued_unasked(tmp_path: Path) -> None:
    output = tmp_path / "trees.jsonl"
    assert session(tmp_path).check([output], resumable=True) is False
    output.write_text("old")
    with pytest.raises(UsageError, match=r"trees\.jsonl exists; go on with --resume, or replace it"):
        session(tmp_path).check([output], resumable=True)
    with pytest.raises(UsageError, match=r"trees\.jsonl exists; replace it with --overwrite"):
        session(tmp_path).check([output])
    assert session(tmp_path, resume=True).check([output], resumable=True) is True
    assert output.read_text() == "old"
    replacing = session(tmp_path, overwrite=True)
    replacing.check([output], resumable=True)
    assert output.exists()
    replacing.start()
    assert not output.exists()
    with pytest.raises(UsageError, match="exclude each other"):
        session(tmp_path, resume=True, overwrite=True).check([output], resumable=True)


def test_a_resumed_stage_keeps_its_settings(tmp_path: Path) -> None:
    session(tmp_path, max_steps=9).start()
    (tmp_path / "trees.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"environment\.max_steps was 9, now 8"):
        session(tmp_path, resume=True, max_steps=8).check([tmp_path / "trees.jsonl"], resumable=True)
    assert session(tmp_path, resume=True, max_steps=9, processes=4).check([tmp_path / "trees.jsonl"], resumable=True)


def test_the_manifest_says_how_it_came_about(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("x")
    record = session(tmp_path).finish(inputs=[tmp_path / "input"], counts={"trees": 3}, seconds={"policy": 1.23456})
    stored = RunDirectory(tmp_path).finished("rollout")
    assert stored == record
    assert stored is not None
    assert stored.counts == {"trees": 3}
    assert stored.seconds["policy"] == 1.235
    assert stored.inputs[str(tmp_path / "input")].startswith("2d711642b726b044")
    assert msgspec.convert(stored.settings, Settings).policy.model == "m"
    assert stored.versions["agentcli"]
