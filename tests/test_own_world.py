"""A world of five members, as a stranger writes it, goes through every stage; what it cannot do is refused."""

import os
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from agentcli.environments.protocol import Closable, Engine, Forkable, Solvable, Tutor, World
from agentcli.environments.registry import make_world
from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import rollout_class
from agentcli.records.files import read_records
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.trees import validate_tree
from agentcli.records.types import Outcome, Tree
from command_line import Answer

FILE = Path(__file__).parents[1] / "examples" / "own_world.py"
ENV = f"{FILE}:Stairs"
SETTINGS = f"""
environment: {{name: "{ENV}", max_steps: 5, options: {{floors: 3}}}}
policy: {{temperature: 1.0, max_tokens: 16}}
prompt: {{history: 1}}
demos: {{count: 24, policy: random}}
sft: {{updates: 30, learning_rate: 3.0e-3}}
rollout: {{leaves: 3, tasks_per_step: 2}}
train: {{learning_rate: 1.0e-4, rows_per_update: 16, beta: 0.0}}
run: {{iterations: 1}}
"""
MODEL = ("--model", "runs/sft/checkpoint")
PRESET = ("--preset", "./own.yaml")


def run(*words: str) -> Answer:
    return command_line.agentcli(*words, "-q")


def agentcli(*words: str) -> None:
    """One command line, which must end well."""
    result = run(*words)
    assert result.code == 0, f"agentcli {' '.join(words)}: {result.stderr}"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder with demonstrations by a uniform draw, and a policy made from them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
            patch.delenv(name)
        patch.chdir(tmp_path_factory.mktemp("own"))
        Path("own.yaml").write_text(SETTINGS, encoding="utf-8")
        agentcli("demos", *PRESET, "-o", "runs/demos")
        agentcli("sft", "runs/demos", "--model", "tiny", "-o", "runs/sft")
        yield


def test_it_writes_five_members_and_has_no_capability() -> None:
    world: World = make_world(EnvironmentSettings(name=ENV))
    engine: Engine = world.engine()
    written = {
        name
        for thing in (world, engine)
        for name in dir(type(thing))
        if name in {"card", "tasks", "engine", "start", "step"}
    }
    assert len(written) == 5
    for capability in (Forkable, Solvable, Closable):
        assert not isinstance(engine, capability)
    assert not isinstance(world, Tutor)


def test_env_check_replays_it_at_random() -> None:
    agentcli("env", "check", ENV, "--tasks", "2")


@pytest.mark.parametrize("method", sorted(set(method_names()) - {"test-time-branch", "rare-tool"}))
def test_every_method_grows_trees_in_it(method: str) -> None:
    out = f"runs/{method}"
    roots = ("--roots", "2") if "roots" in rollout_class(method).__struct_fields__ else ()
    agentcli("rollout", *PRESET, *MODEL, "--method", method, *roots, "--tasks", "2", "-o", out)
    trees = list(read_records(Path(out, "trees.jsonl"), Tree))
    assert len(trees) == 2
    for number, tree in enumerate(trees, 1):
        validate_tree(tree, f"{out}:{number}")
        assert all(step.outcome is not Outcome.ERRORED for step in tree.steps)


def test_credit_training_evaluation_and_the_loop() -> None:
    agentcli("rollout", *PRESET, *MODEL, "--tasks", "2", "-o", "runs/one")
    agentcli("assign-credit", "runs/one")
    agentcli("train", "runs/one", *MODEL)
    agentcli("eval", "runs/one", *PRESET, *MODEL)
    agentcli("pass-at-k", "runs/one", *PRESET, *MODEL, "--set", "evaluation.n=2", "--set", "evaluation.k=2")
    agentcli("test-time-branch", "runs/one", *PRESET, *MODEL)
    agentcli("run", "--preset", "./own.yaml", *MODEL, "-o", "runs/loop")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("rollout", *PRESET, "--policy", "expert", "-o", "runs/x"), ("expert", "--policy")),
        (("rollout", *PRESET, "--policy", "search", "-o", "runs/x"), ("search", "--policy", "Tutor")),
        (
            ("rollout", *PRESET, "--policy", "random", "--set", "prompt.style=compact", "-o", "runs/x"),
            ("compact", "prompt.style", "Brief"),
        ),
        (("rollout", *PRESET, "--policy", "random", "--split", "hard", "-o", "runs/x"), ("--split hard",)),
        (("env", "check", f"{FILE}:Stair"), ("environment.name", "Stair")),
        (("env", "check", f"{FILE.parent}/none.py:Stairs"), ("environment.name", "none.py")),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(words: tuple[str, ...], names: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.code == 2, result.stderr
    assert len(result.stderr.strip().split("\n")) == 1, result.stderr
    for name in names:
        assert name in result.stderr
