"""Every command that a script for a GPU types is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import bench_vllm
import pytest
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
