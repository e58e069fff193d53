"""Existing output, resumed settings and inputs, one writer, logs, and the manifest entry that comes last."""

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest
from agentcli.errors import AgentCliError
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import EnvironmentSettings, PolicySettings, Settings
from agentcli.reports.standing import Standing
from agentcli.stages.attempts import GOES_ON
from agentcli.stages.plan import StagePlan
from agentcli.stages.session import Invocation, Session
from refusal import refused


@dataclass(frozen=True, kw_only=True)
class NothingToCount(StagePlan):
    """A stage of these tests."""

    def counts(self) -> dict[str, int]:
        return {}


def session(
    path: Path,
    outputs: Sequence[Path] = (),
    resume: bool = False,
    overwrite: bool = False,
    inputs: tuple[Path, ...] = (),
    model: str = "m",
    **environment: object,
) -> Session:
    plan = NothingToCount(
        stage="rollout",
        run=RunDirectory(path),
        settings=Settings(environment=EnvironmentSettings(**environment), policy=PolicySettings(model=model)),
        sections=("environment", "policy"),
        inputs={},
        sources=inputs,
        outputs=outputs,
    )
    return Session(plan, Invocation(["agentcli", "rollout"], resume, overwrite))


def begin(path: Path, **more: object) -> None:
    with session(path, **more) as begun:
        begun.check()
        begun.start()


def test_output_is_neither_replaced_nor_continued_unasked(tmp_path: Path) -> None:
    output = tmp_path / "trees.jsonl"
    with session(tmp_path, [output]) as fresh:
        fresh.check()
        assert not fresh.resumed
    output.write_text("old")
    with session(tmp_path, [output]) as unasked:
        refused(unasked.check, names=str(output), remedy=("--resume", "--overwrite"))
    with session(tmp_path, [output], resume=True) as resumed:
        resumed.check()
        assert resumed.resumed
    assert output.read_text() == "old"
    with session(tmp_path, [output], overwrite=True) as replacing:
        replacing.check()
        assert output.exists()
        replacing.start()
        assert not output.exists()
    refused(lambda: session(tmp_path, [output], resume=True, overwrite=True), names=("--resume", "--overwrite"))


def test_a_resumed_stage_keeps_its_settings(tmp_path: Path) -> None:
    begin(tmp_path, max_steps=9)
    output = tmp_path / "trees.jsonl"
    output.write_text("")
    with session(tmp_path, [output], resume=True, max_steps=8) as other:
        refused(other.check, names=("environment.max_steps", "9", "8"), remedy="--overwrite")
    with session(tmp_path, [output], resume=True, max_steps=9, processes=4) as faster:
        faster.check()
        assert faster.resumed


def test_a_resumed_stage_keeps_its_inputs_wherever_they_lie_now(tmp_path: Path) -> None:
    run, first, moved = tmp_path / "run", tmp_path / "first", tmp_path / "moved"
    first.write_text("x")
    begin(run, inputs=(first,))
    first.rename(moved)
    with session(run, resume=True, inputs=(moved,)) as same:
        same.check()
    moved.write_text("y")
    with session(run, resume=True, inputs=(moved,)) as changed:
        refused(changed.check, names=(str(run), str(moved)), remedy="--overwrite")


def test_a_setting_may_name_a_model_that_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a loop is copied together with the checkpoint that it began with."""
    place = tmp_path / "place"
    (place / "m").mkdir(parents=True)
    (place / "m/config.json").write_text("{}")
    monkeypatch.chdir(place)
    begin(Path("run"), inputs=(Path("m"),))
    monkeypatch.chdir(tmp_path)
    moved = partial(session, Path("place/run"), resume=True, inputs=(Path("place/m"),), model="./place/m")
    with moved() as same:
        same.check()
    (place / "m/config.json").write_text("[]")
    with moved() as another:
        refused(another.check, names=("policy.model", "place/m"), remedy="--overwrite")


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        ("y", "ab", "b has changed"),
        ("x", "abc", "c was not among it"),
        ("x", "a", "b is left out"),
        ("x", "ba", "the order is another"),
        ("x", "ab", None),
    ],
)
def test_inputs_are_compared_one_by_one_and_in_order(tmp_path: Path, change: str, given: str, said: str | None) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"{name} x")
    begin(tmp_path / "run", inputs=(tmp_path / "a", tmp_path / "b"))
    (tmp_path / "b").write_text(f"b {change}")
    with session(tmp_path / "run", resume=True, inputs=tuple(tmp_path / name for name in given)) as resumed:
        if said is None:
            resumed.check()
        else:
            refused(resumed.check, names=(str(tmp_path / "run"), said), remedy="--overwrite")


def test_a_preview_refuses_what_the_stage_does_and_leaves_no_trace(tmp_path: Path) -> None:
    begin(tmp_path, max_steps=9)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    session(tmp_path, resume=True, max_steps=9).preview()
    refused(lambda: session(tmp_path, resume=True, max_steps=8).preview(), names=("environment.max_steps", "9", "8"))
    with session(tmp_path) as writer:
        writer.check()
        for _ in range(2):
            refused(lambda: session(tmp_path, resume=True, max_steps=9).preview(), names="agentcli rollout")
    session(tmp_path, resume=True, max_steps=9).preview()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    with session(tmp_path) as first:
        first.check()
        refused(lambda: session(tmp_path).check(), names="agentcli rollout")
    assert list(tmp_path.iterdir()) == [], "a stage that wrote nothing leaves nothing"
    with session(tmp_path) as next_one:
        next_one.check()
        next_one.start()


def test_a_writer_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import os, signal, pathlib, sys; from agentcli.records.runs import RunLock; "
        "RunLock(pathlib.Path(sys.argv[1]), 'agentcli rollout', 'now'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert (tmp_path / ".lock").exists()
    session(tmp_path, resume=True).preview()
    assert (tmp_path / ".lock").exists()
    begin(tmp_path)
    assert not (tmp_path / ".lock").exists()


def test_what_appears_between_check_and_start_is_not_overwritten(tmp_path: Path) -> None:
    run, output = tmp_path / "run", tmp_path / "run" / "trees.jsonl"
    with session(run, [output]) as late:
        late.check()
        run.mkdir()
        output.write_text("theirs")
        refused(lambda: late.start(), names="trees.jsonl", remedy="-o DIR")
    assert output.read_text() == "theirs"


def fail(run: Path, *, started: bool) -> None:
    with session(run) as failing:
        failing.progress.note("a note before anything is written")
        logging.getLogger("agentcli.policies.some").warning("a note from %s", "below")
        failing.check()
        if started:
            failing.start()
            failing.progress.start(Standing("growing", 3))
            failing.progress.advance(1, success=1.0)
            failing.progress.stop()
        raise AgentCliError("broken")


def test_every_attempt_has_a_log_that_says_how_it_ended(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(AgentCliError):
        fail(tmp_path, started=True)
    logs = sorted((tmp_path / "logs").iterdir())
    assert [path.name for path in logs] == ["rollout-001.log", "rollout-002.log"]
    first, second = (path.read_text() for path in logs)
    assert first.splitlines()[0].endswith("INFO agentcli rollout")
    assert first.splitlines()[-1].endswith("INFO finished")
    assert "a note before" in second
    assert "a note from below" in second
    assert "growing: 1/3, success 1.00" in second
    assert "ERROR Traceback" in second
    assert second.splitlines()[-1] == "agentcli.errors.AgentCliError: broken"


def test_the_time_of_earlier_attempts_counts(tmp_path: Path) -> None:
    """Two attempts were killed after 100 and 20 s; what was there before they began anew does not count."""
    logs = tmp_path / "logs"
    begin(tmp_path)
    output = tmp_path / "trees.jsonl"
    output.write_text("begun")
    for number, (first, ended) in enumerate([("", "00:10:00"), ("", "00:01:40"), (GOES_ON, "00:00:20")], 1):
        lines = ["2026-01-01T00:00:00+00:00 INFO agentcli rollout", f"2026-01-01T00:00:00+00:00 INFO {first}"]
        log = "\n".join([*lines, f"2026-01-01T{ended}+00:00 INFO rollout: 1/3", "ValueError: no time here", ""])
        (logs / f"rollout-{number:03d}.log").write_text(log)
    with session(tmp_path, [output], resume=True) as third:
        third.check()
        third.start()
        record = third.finish()
    assert 120 <= record.seconds["wall"] < 180
    assert GOES_ON in (logs / "rollout-004.log").read_text()


def test_a_stage_that_writes_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AgentCliError):
        fail(tmp_path / "run", started=False)
    assert not (tmp_path / "run").exists()


def test_what_a_library_prints_does_not_reach_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for broken in (False, True):
        with suppress(AgentCliError), session(tmp_path / "a"), session(tmp_path / "b"):
            print("[INFO] Running")
            if broken:
                raise AgentCliError("broken")
        print("result")
    assert capsys.readouterr() == ("result\nresult\n", "[INFO] Running\n[INFO] Running\n")


def test_only_the_first_process_of_a_training_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with session(tmp_path / "run") as other:
        other.check()
        other.start()
        other.finish()
    assert not (tmp_path / "run").exists()


def test_the_manifest_says_how_it_came_about(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("x")
    with session(tmp_path, inputs=(tmp_path / "input",)) as done:
        record = done.finish(counts={"trees": 3}, seconds={"policy": 1.23456})
    stored = RunDirectory(tmp_path).finished("rollout")
    assert stored == record
    assert stored is not None
    assert stored.counts == {"trees": 3}
    assert stored.seconds["policy"] == 1.235
    assert stored.inputs[str(tmp_path / "input")].startswith("2d711642b726b044")
    assert msgspec.convert(stored.settings, Settings).policy.model == "m"
    assert stored.versions["agentcli"]
    assert json.loads((tmp_path / "manifest.json").read_bytes())["stages"].keys() == {"rollout"}
