"""What needs no model of its own works where torch and what builds on it is not installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer, completion
from foreign import FORMATS, unpacked

ROOT = Path(__file__).parents[2]
FAMILY = (
    "accelerate",
    "datasets",
    "huggingface_hub",
    "peft",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
    "vllm",
)
BLOCKED = f"""
import sys
from importlib import metadata

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FAMILY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())

def version(name, known=metadata.version):
    if name in {FAMILY}:
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
"""
"""A process in which the family of torch can be neither imported nor found."""
MAIN = "from agentcli.cli.app import main\nmain()"
SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 6, options: {tasks: 4, length: 3}}
policy: {model: m, endpoint: {retries: 0, request_seconds: 20}}
rollout: {leaves: 3}
"""


def typed(folder: Path, *words: str, code: str = MAIN) -> subprocess.CompletedProcess[str]:
    paths = f"{ROOT}:{ROOT / 'tests' / 'support'}"
    environ = {**os.environ, "PYTHONPATH": paths, "AGENTCLI_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", BLOCKED + code, *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def works(folder: Path, *words: str) -> str:
    done = typed(folder, *words)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text(SETTINGS)
    return tmp_path


def test_a_run_is_sampled_credited_looked_at_and_exported(here: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        works(here, "rollout", "-c", "toy.yaml", "--policy", "random", "--seed", str(seed), "-o", name)
        works(here, "eval", name, "--policy", "random", "--label", "test")
    for method in ("grpo", "gigpo", "rewardflow"):
        works(here, "assign-credit", "a", "--method", method)
    works(here, "credit", "compare", "a")
    works(here, "show", "a")
    assert "advantage" in works(here, "show", "a", "1", "--credit", "rewardflow")
    works(here, "view", "a", "-o", "page.html")
    assert (here / "page.html").stat().st_size > 10_000
    works(here, "validate", "a")
    works(here, "compare", "a/evaluation/test.json", "b/evaluation/test.json")
    works(here, "export", "a", "--to", "messages", "--all")
    works(here, "export", "a", "--to", "parquet", "--credit", "grpo")
    works(here, "export", "a", "--to", "conversations", "--credit", "grpo")
    files = {path.name for path in (here / "a" / "export").iterdir()}
    assert files == {"messages.jsonl", "steps.parquet", "conversations.jsonl"}


def test_what_others_rolled_out_is_imported_and_credited(here: Path) -> None:
    for form, file in FORMATS.items():
        works(here, "import", str(unpacked(here) / file), "--from", form, "--states", "observation", "-o", form)
        works(here, "assign-credit", form, "--method", "rewardflow")
        works(here, "export", form, "--to", "conversations")


def test_an_endpoint_plays(here: Path) -> None:
    with ChatServer([completion("<think>on</think><action>go east</action>")]) as server:
        works(here, "rollout", "-c", "toy.yaml", "--policy", "openai", "--base-url", server.url, "-o", "a")
        assert server.bodies
    works(here, "assign-credit", "a", "--method", "carl")


def test_plain_lists_get_their_credit(here: Path) -> None:
    lists = {"groups": [1, 1], "rewards": [1.0, 0.0]}
    code = f"from agentcli import token_advantages\nprint(token_advantages([[1, 0], [1, 1]], {lists}, 'rloo'))"
    assert typed(here, code=code).stdout == "[[1.0, 0.0], [-1.0, -1.0]]\n"


def test_the_doctor_lists_what_is_here_and_names_torch(here: Path) -> None:
    done = typed(here, "doctor", "--json")
    assert done.returncode == 4
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows["python"]["present"]
    assert not rows["torch"]["present"]
    assert "torch missing" in rows["core"]["detail"]


def test_a_policy_of_this_process_says_what_to_install(here: Path) -> None:
    done = typed(here, "rollout", "-c", "toy.yaml", "--policy", "transformers", "-o", "a")
    assert done.returncode == 4
    assert done.stderr.endswith("is not installed; type: pip install --upgrade agentcli\n")
    assert "Traceback" not in done.stderr
