"""Every command that a script for a GPU, or for hours, types is one, and each of a real model's loop begins as a dry run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import bench_vllm
import pytest
from bad_input_runs import built
from command_line import parse
from processes import as_here
from typed_pages import ROOT

RECORD = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
with open({record!r}, "a") as record:
    record.write(json.dumps([{name!r}, *words]) + chr(10))
if "-o" in words:
    folder = pathlib.Path(words[words.index("-o") + 1], "iteration_000")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text('{{"gap_max":0.1,"gap_mean":0.1}}')
"""
"""A program that writes down how it is called, and leaves a loop's figures."""
DRY = """#!{python}
import shutil, sys
from command_line import agentcli, parse
words = sys.argv[1:]
if words[0] == "compare":
    parse(words)
    sys.exit()
answer = agentcli(*words, "--dry-run")
print(answer.stdout)
if "-o" in words:
    made = {{"runs/demos": "demos", "runs/sft": "sft"}}
    out = words[words.index("-o") + 1]
    shutil.copytree({runs!r} + "/" + made.get(out, "loop"), out, symlinks=True)
sys.exit(answer.stderr if answer.code else 0)
"""
"""agentcli with --dry-run. What the command would write is taken from small runs, so that the next one can begin."""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def typed_by(script: str, *words: str, folder: Path) -> list[list[str]]:
    """The command lines of programs that a script types, with recorders in their place."""
    record = str(folder / "record.jsonl")
    for name in ("agentcli", "python"):
        program(folder / "bin" / name, RECORD.format(python=sys.executable, record=record, name=name))
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    subprocess.run([ROOT / "scripts" / script, *words], cwd=folder, check=True, env={**as_here(), "PATH": path})
    return [json.loads(line) for line in Path(record).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (("train", "--small", "out"), {"demos", "sft", "rollout", "assign-credit", "train", "run"}),
        (("vllm", "model", "out"), {"rollout", "run", "assign-credit", "train"}),
    ],
)
def test_what_is_checked_on_a_gpu_is_typed_right(
    words: tuple[str, ...], typed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = typed_by("check_gpu.sh", *words, folder=tmp_path)
    commands = [words[1:] for words in lines if words[0] == "agentcli"]
    assert {words[0] for words in commands} == typed
    for command in commands:
        parse(command)
    for bench in [words for words in lines if "bench_vllm" in "".join(words)]:
        monkeypatch.setattr(sys, "argv", bench[1:])
        assert bench_vllm._options().model == "model"


@pytest.mark.slow
def test_every_stage_of_a_real_models_loop_begins(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    small = built(tmp_path_factory.getbasetemp())
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "small_model.sh", scripts)
    dry = tmp_path / "agentcli"
    program(dry, DRY.format(python=sys.executable, runs=str(small / "runs")))
    program(scripts / "install.sh", f'#!/bin/sh\nmkdir -p "$1/bin" && cp {dry} "$1/bin/agentcli"\n')
    program(scripts / "get_small_model.sh", f'#!/bin/sh\ncp -r {small}/runs/sft/checkpoint "$1"\n')
    done = played(scripts / "small_model.sh", "out")
    plans = [line for line in done.stdout.splitlines() if line.startswith("command:")]
    assert [plan.split()[1] for plan in plans] == [
        "demos",
        "sft",
        "eval",
        "eval",
        "run",
        "eval",
        "eval",
        "run",
        "eval",
        "eval",
    ]


def played(script: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [script, *words],
        cwd=script.parents[1],
        env=as_here(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
