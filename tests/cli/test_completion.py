"""TAB at a value, through the protocol of the scripts that the shells source: names from the registries, nothing heavy loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.analysis.schema import kind_names
from agentcli.credit.registry import method_names as credit_names
from agentcli.environments.registry import make_world, world_names
from agentcli.exploration.registry import method_names as exploration_names
from agentcli.policies.registry import policy_names
from agentcli.records.settings import EnvironmentSettings
from agentcli.stages.layers import list_presets

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "textworld", "trl", "scipy", "networkx")
PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print(*(name for name in {HEAVY!r} if name in sys.modules), end="", file=sys.stderr))
from agentcli.cli.app import main
main()
"""
PRESETS = [path.stem for path in list_presets()]
POLICIES = [name for name in policy_names() if name != "demonstrator"]
SPLITS = make_world(EnvironmentSettings()).card.splits


@pytest.fixture(autouse=True)
def alone(empty_folder: Path) -> None:
    """A folder with a run that holds credit by a method of its own name."""
    (empty_folder / "runs/x/credit").mkdir(parents=True)
    (empty_folder / "runs/x/credit/grpo.jsonl").touch()


def asked(**variables: str) -> str:
    """What the program prints when a shell asks it; it must print nothing else and load nothing heavy."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    assert answer.stderr == ""
    return answer.stdout


def in_bash(line: str) -> list[str]:
    """The words offered at the end of `line`."""
    place = len(line.split(" ")) - 1
    return asked(_AGENTCLI_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(place)).split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("agentcli rollout --method ", exploration_names()),
        ("agentcli rollout --method sp", ["spark"]),
        ("agentcli assign-credit --method ", credit_names()),
        ("agentcli assign-credit --form ", ["paper", "release"]),
        ("agentcli rollout --env ", world_names()),
        ("agentcli env check ", world_names()),
        ("agentcli rollout --preset ", PRESETS),
        ("agentcli run --preset quick", [name for name in PRESETS if name.startswith("quick")]),
        ("agentcli preset copy spark", [name for name in PRESETS if name.startswith("spark")]),
        ("agentcli rollout --split ", SPLITS),
        ("agentcli env panel alfworld --split L", [name for name in SPLITS if name.startswith("L")]),
        ("agentcli rollout --env nowhere --split ", []),
        ("agentcli demos --policy ", POLICIES),
        ("agentcli train --tracker ", ["tensorboard", "wandb", "trackio", "mlflow"]),
        ("agentcli train --credit ", credit_names()),
        ("agentcli train runs/x --credit ", ["grpo"]),
        ("agentcli schema s", [name for name in kind_names() if name.startswith("s")]),
        ("agentcli rollout --dtype f", ["float32", "float16"]),
        ("agentcli preset copy quickstart ", []),
        ("agentcli rollout -o ", []),
        ("agentcli sft ru", []),
        ("agentcli rollo", ["rollout"]),
        ("agentcli env ", ["list", "check", "panel", "serve", "new"]),
    ],
)
def test_bash(line: str, names: list[str]) -> None:
    assert sorted(in_bash(line)) == sorted(names)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("agentcli rollout --method ", exploration_names()),
        ("agentcli preset show q", [name for name in PRESETS if name.startswith("q")]),
    ],
)
def test_zsh(line: str, names: list[str]) -> None:
    shown = asked(_AGENTCLI_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
    assert shown.startswith("_arguments '*: :((")
    assert sorted(shown.strip().removeprefix("_arguments '*: :((").removesuffix("))'").split()) == sorted(
        f'"{name}"' for name in names
    )


def test_zsh_leaves_paths_to_the_shell() -> None:
    assert asked(_AGENTCLI_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="agentcli rollout -o ").strip() == "_files"


def test_the_generated_script_works_in_bash(tmp_path: Path) -> None:
    """The script that --show-completion prints, sourced by a real bash with the program on its PATH."""
    program = tmp_path / "agentcli"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n{PROGRAM}", encoding="utf-8"
    )
    program.chmod(0o755)
    script = asked(_AGENTCLI_COMPLETE="source_bash")
    line = f"{script}\nCOMP_WORDS=(agentcli rollout --method s) COMP_CWORD=3\n_agentcli_completion agentcli\necho ${{COMPREPLY[@]}}"
    answer = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert answer.stdout.split() == [name for name in exploration_names() if name.startswith("s")]
