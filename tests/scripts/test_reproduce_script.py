"""reproduce_small.sh's own part: what is asked for, what is passed over, and that a failure stops nothing else.

A recorder stands in for agentcli: it notes the command and leaves a manifest."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reproduce_small.sh"
RECORDER = r"""#!/usr/bin/env bash
printf '%s\n' "$*" >>"$RECORD"
[[ -n ${FAILS:-} && "$*" == *$FAILS* ]] && exit 3
stage=$1 out= words=("$@")
for place in "${!words[@]}"; do
  [[ ${words[place]} == -o ]] && out=${words[place + 1]}
  [[ ${words[place]} == --label ]] && stage=evaluation/${words[place + 1]}
done
mkdir -p "$out" && printf '    "%s": {\n' "$stage" >>"$out/manifest.json"
"""


def reproduce(base: Path, **variables: str) -> tuple[int, str, list[str]]:
    """Exit code, stderr and the commands of one call, one job at a time."""
    tools, record = base / "tools", base / "record"
    tools.mkdir(exist_ok=True)
    record.write_text("")
    for name, text in (("agentcli", RECORDER), ("python", "#!/bin/sh\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    wanted = {
        "REGIME": "six",
        "JOBS": "1",
        "PANELS": "L0",
        "PATH": f"{tools}:{os.environ['PATH']}",
        "RECORD": str(record),
    }
    done = subprocess.run(
        ["bash", str(SCRIPT), str(base / "out"), "0", "1"],
        env=os.environ | wanted | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr, record.read_text().splitlines()


def test_typed_again_it_starts_nothing(tmp_path: Path) -> None:
    code, _, commands = reproduce(tmp_path, METHODS="grpo carl")
    assert code == 0
    assert len(commands) == 2 * (1 + 1 + 1) + 4 * 2
    assert sum("sft.updates=1800" in command for command in commands) == 2
    assert reproduce(tmp_path, METHODS="grpo carl")[2] == []
    (again,) = {command.split()[0] for command in reproduce(tmp_path, METHODS="grpo carl", ITERATIONS="9")[2]}
    assert again == "run"


def test_what_lost_its_manifest_is_begun_again(tmp_path: Path) -> None:
    reproduce(tmp_path, METHODS="grpo")
    (tmp_path / "out/six/1/grpo/manifest.json").unlink()
    assert [command.split()[0] for command in reproduce(tmp_path, METHODS="grpo")[2]] == ["run", "eval"]


def test_one_failure_stops_nothing_else(tmp_path: Path) -> None:
    code, stderr, commands = reproduce(tmp_path, METHODS="grpo gigpo carl", FAILS="0/gigpo")
    assert code == 1
    assert "failed: train 0 gigpo" in stderr
    assert sum(command.startswith("run ") for command in commands) == 6
    _, _, later = reproduce(tmp_path, METHODS="grpo gigpo carl")
    assert [command.split()[0] for command in later] == ["run", "eval"]


def test_without_its_start_a_seed_has_no_loops(tmp_path: Path) -> None:
    code, stderr, commands = reproduce(tmp_path, METHODS="grpo", FAILS="0/sft")
    assert code == 1
    assert "start 0" in stderr
    assert [command.split("-o ")[1].split()[0][-6:] for command in commands if command.startswith("run ")] == ["1/grpo"]


def sets_of(command: str) -> list[str]:
    return [word.removeprefix("--set=") for word in command.split() if word.startswith("--set=")]


def test_common_settings_and_those_of_a_variant(tmp_path: Path) -> None:
    _, _, commands = reproduce(tmp_path, METHODS="gigpo carl", COMMON="credit.penalty=outside policy.temperature=1.2")
    gigpo, carl, *_ = (command for command in commands if command.startswith("run "))
    assert sets_of(gigpo)[:3] == ["credit.penalty=outside", "policy.temperature=1.2", "credit.method=gigpo"]
    assert "penalty" not in carl
    assert sets_of(carl)[:3] == ["policy.temperature=1.2", "rollout.method=carl", "credit.method=carl"]
    assert all("--iterations 24" in loop and "rollout.budget=steps=900" in loop for loop in (gigpo, carl))


def test_where_questions_are_asked_the_held_out_games_are_the_split_test(tmp_path: Path) -> None:
    _, _, commands = reproduce(tmp_path, REGIME="search", METHODS="grpo search-carl", PANELS="L0 L0-greedy")
    evaluations = [command for command in commands if command.startswith("eval ")]
    assert len(evaluations) == 2 * 3 * 2
    assert all("--split test" in command and "--label L0" in command for command in evaluations)
    assert sum("--temperature 0" in command for command in evaluations) == 6


@pytest.mark.parametrize(("name", "value"), [("METHODS", "grpo nothing"), ("REGIME", "seven")])
def test_unknown_names_are_refused_at_once(tmp_path: Path, name: str, value: str) -> None:
    code, stderr, commands = reproduce(tmp_path, **{name: value})
    assert (code, commands) == (2, [])
    assert name in stderr
    assert value.split()[-1] in stderr
