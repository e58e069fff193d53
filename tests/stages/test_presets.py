"""The papers' presets: each says where its numbers come from, its commands are good ones, and its methods really run.

One tiny policy and one rollout per exploration method serve all presets: generated bathrooms, a horizon of 8, five leaves. What a
preset says of the method (credit, losses, optimiser, LoRA) stays as it is; only sizes are overridden. No gain is asked for.
"""

import math
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agentcli.credit.registry import make as make_credit
from agentcli.exploration.registry import make as make_exploration
from agentcli.exploration.settings import decode
from agentcli.records.files import read_json, read_records
from agentcli.records.trees import leaves, validate_tree
from agentcli.records.types import Manifest, Outcome, Tree
from agentcli.stages.layers import find_preset, list_presets, resolve
from agentcli.training.metrics import DpoMetrics, TrainMetrics
from command_line import succeeded

SMALL = """
environment:
  max_steps: 8
  options:
    kinds: [pick_and_place_simple]
    rooms: [bathroom]
    scenes_per_room: 2
    clutter: 2
    distractor_instances: 1
    games: {train: 20, valid_seen: 4, valid_unseen: 4}
prompt: {style: compact}
policy: {temperature: 0.9, max_tokens: 40, max_prompt_tokens: 2048}
demos: {keep: all, overlook: 0.3, wander: 0.2}
sft: {epochs: 5, learning_rate: 4.0e-3, samples_per_update: 16, max_length: 2048, tiny: {hidden: 64, layers: 2}}
rollout: {leaves: 5, tasks_per_step: 3}
evaluation: {tasks: 2, temperature: 1.0}
"""
PAPER = "(SPARK|RewardFlow|CARL|DPEPO|Rare-tool)"
PAPERS = [path.stem for path in list_presets() if "-alfworld" in path.stem]
OTHERS = [path.stem for path in list_presets() if "-webshop" in path.stem or "-scienceworld" in path.stem]
READ = [*PAPERS, *[name for name in OTHERS if not name.startswith("quickstart")]]
"""Presets whose files are read here; that those of other worlds run is tested beside the worlds."""
WITHOUT_TRAINING = {"react-alfworld", "sft-alfworld"}
TRAINED = [name for name in PAPERS if name not in WITHOUT_TRAINING]
METHODS = sorted({resolve(name, [], {}, [], {}).rollout.method for name in TRAINED})
POLICY = "runs/sft/checkpoint"


def small(preset: str) -> list[str]:
    words = ["--preset", preset, "-c", "small.yaml", "-q"]
    for name in ("roots", "copies"):
        if hasattr(resolve(preset).rollout, name):
            words += ["--set", f"rollout.{name}=2"]
    return words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with runs/demos, runs/sft (a policy that acts in one environment, and in several) and runs/METHOD."""
    folder = tmp_path_factory.mktemp("presets")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AGENTCLI_", "ALFWORLD_"))]:
            patch.delenv(name)
        patch.setenv("AGENTCLI_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        Path("small.yaml").write_text(SMALL, encoding="utf-8")
        succeeded("demos", *small("sft-alfworld"), "--count", "60", "-o", "runs/demos")
        succeeded("demos", *small("dpepo-alfworld"), "--count", "30", "-o", "runs/parallel")
        with open("runs/demos/trees.jsonl", "ab") as file:
            file.write(Path("runs/parallel/trees.jsonl").read_bytes())
        succeeded("sft", "runs/demos", "--model", "tiny", "-q", "-o", "runs/sft")
        for method in METHODS:
            preset = next(name for name in TRAINED if resolve(name, [], {}, [], {}).rollout.method == method)
            succeeded(
                "rollout", *small(preset), "--model", POLICY, "--iteration", "0", "--seed", "3", "-o", f"runs/{method}"
            )
        yield folder


@pytest.fixture(scope="module")
def loop(folder: Path) -> Path:
    """runs/rl, which the commands in the presets evaluate."""
    words = [
        "run",
        "--preset",
        "grpo-alfworld",
        "-c",
        "small.yaml",
        "--iterations",
        "1",
        "--model",
        POLICY,
        "-q",
        "-o",
        "runs/rl",
    ]
    succeeded(*words)
    return folder / "runs/rl"


def test_there_is_a_preset_for_every_method_that_can_be_trained() -> None:
    settings = [resolve(name, [], {}, [], {}) for name in (*TRAINED, "grpo-prm", "rare-tool")]
    from agentcli.credit.registry import METHODS as CREDIT
    from agentcli.exploration.registry import METHODS as EXPLORATION

    assert {one.credit["method"] for one in settings} == {*CREDIT} - {"ppo"}  # ppo: quickstart-ppo
    assert {one.rollout.method for one in settings} == {*EXPLORATION} - {"test-time-branch", "criticality"}
    assert [one.train.objective for one in settings].count("dpo") == 1


@pytest.mark.parametrize("name", READ)
def test_it_resolves_and_its_methods_take_its_switches(name: str) -> None:
    settings = resolve(name, [], {}, [], {})
    assert settings != decode({})
    make_exploration(settings.rollout.method)
    method, _, switches = make_credit(settings.credit)
    given = yaml.safe_load(find_preset(name).read_text(encoding="utf-8")).get("credit", {"method": method})
    assert given.pop("method", method) == method
    assert {key: getattr(switches, key) for key in given} == given
    settings.rollout.check()
    assert settings.sft.max_length >= settings.policy.max_tokens


OF_002 = ("rewardflow-alfworld", "grpo-alfworld-rewardflow", "gigpo-alfworld-rewardflow", "rloo-alfworld")


@pytest.mark.parametrize("name", OF_002)
def test_002_table_8(name: str) -> None:
    """Column ALFWorld; the history is the authors' configuration's."""
    found = resolve(name, [], {}, [], {})
    assert (found.rollout.tasks_per_step, found.train.rows_per_update, found.environment.max_steps) == (16, 256, 25)
    assert (found.policy.max_prompt_tokens, found.policy.max_tokens, found.policy.temperature) == (2048, 512, 0.4)
    assert (found.run.iterations, found.train.learning_rate, found.train.beta) == (100, 1e-6, 0.01)
    assert (found.rollout.leaves, found.prompt.history, found.train.aggregate) == (8, 2, "step")
    own = {"rewardflow": {"gamma": 0.9, "alpha_action": 1.0, "alpha_traj": 1.0}, "gigpo": {"gamma": 0.95, "w": 1.0}}
    method, _, switches = make_credit(found.credit)
    for switch, value in {"invalid_penalty": 0.1, "success_reward": 1.0, **own.get(method, {})}.items():
        assert getattr(switches, switch) == value
    papers = [path.stem for path in list_presets() if "# RewardFlow Table 8" in path.read_text(encoding="utf-8")]
    assert set(papers) >= set(OF_002)


@pytest.mark.parametrize("name", READ)
def test_its_header_names_paper_table_models_and_start(name: str) -> None:
    header = find_preset(name).read_text(encoding="utf-8").partition("\n\n")[0]
    lines = header.splitlines()
    assert re.fullmatch(r"# \w.{20,108}", lines[0])
    assert lines[1] == "#"
    text = " ".join(line.lstrip("# ") for line in lines[2:])
    found = re.fullmatch(r"Settings: (.+?) Result: (.+?) Models: (.+?) Start: (.+)", text)
    assert found, text
    settings, result, models, start = found.groups()
    assert re.search(PAPER, settings)
    assert re.search(r"[Aa]ppendix [A-D]|Table \d", settings)
    assert re.search(rf"{PAPER} .*Table \d", result) or (result.lower().startswith("none") and "Table " in result)
    assert "1.5B" in models
    assert "7B" in models
    assert start.startswith("agentcli ")
    if not result.lower().startswith("none"):
        for size in ("1.5B", "7B"):
            assert re.search(rf"{re.escape(size)} \d+\.\d( / \d+\.\d)+", result), size


OF_002_SHOPS = ("rewardflow-webshop", "grpo-webshop-rewardflow", "gigpo-webshop-rewardflow", "rloo-webshop")


@pytest.mark.parametrize("name", OF_002_SHOPS)
def test_002_table_8_for_webshop(name: str) -> None:
    settings = resolve(name, [], {}, [], {})
    assert (settings.rollout.tasks_per_step, settings.train.rows_per_update, settings.environment.max_steps) == (
        16,
        64,
        15,
    )
    policy = settings.policy
    assert (policy.max_prompt_tokens, policy.max_tokens, policy.temperature) == (4096, 512, 0.4)
    assert (settings.run.iterations, settings.train.learning_rate, settings.train.beta) == (100, 1e-6, 0.01)
    assert (settings.rollout.leaves, settings.prompt.history, settings.evaluation.split) == (8, 2, "test")


@pytest.mark.parametrize("name", READ)
def test_every_value_says_where_it_comes_from(name: str) -> None:
    for line in find_preset(name).read_text(encoding="utf-8").partition("\n\n")[2].splitlines():
        key, _, value = line.strip().partition(": ")
        if not value or key == "name" or (key, value) == ("split", "train") or key == "method":
            continue
        source = value.partition("# ")[2]
        assert re.match(rf"{PAPER}:? |not named|not read", source), line


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_its_commands_are_accepted(name: str, folder: Path, loop: Path) -> None:
    """As typed, on whole panels, but for --dry-run."""
    header = find_preset(name).read_text(encoding="utf-8").partition("\n\n")[0]
    commands = [line.lstrip("# ") for line in header.splitlines() if line.startswith("#   agentcli ")]
    assert any(name in command.split() for command in commands)
    for command in commands:
        words = shlex.split(command)[1:]
        succeeded(*words, "--dry-run", "--overwrite")


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_its_rollout_is_accepted_with_a_small_panel(name: str, folder: Path) -> None:
    succeeded("rollout", *small(name), "--model", POLICY, "--tasks", "2", "--dry-run", "-o", "runs/never")
    assert not Path("runs/never").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_its_exploration_really_ran(method: str, folder: Path) -> None:
    trees = list(read_records(Path(f"runs/{method}/trees.jsonl"), Tree))
    assert len(trees) == 3
    for number, tree in enumerate(trees, 1):
        validate_tree(tree, f"{method}:{number}")
        assert tree.method == method
        assert 2 <= len(leaves(tree)) <= 5
        assert all(len(step.token_ids) == len(step.logprobs) > 0 for step in tree.steps)
    outcomes = {leaf.outcome for tree in trees for leaf in leaves(tree)}
    assert outcomes == {Outcome.SUCCESS, Outcome.TRUNCATED}  # else there is nothing to learn below
    if method == "dpepo":
        assert any(len(step.moves) > 1 for tree in trees for step in tree.steps)
    forks = sum(
        count > 1
        for tree in trees
        for count in Counter(step.parent for step in tree.steps if step.parent is not None).values()
    )
    assert (forks > 0) is (method not in ("chain", "dpepo"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_it_really_trains(name: str, folder: Path) -> None:
    settings = resolve(name, [], {}, [], {})
    run = Path("trained") / name
    shutil.copytree(Path("runs") / settings.rollout.method, run)
    dpo = settings.train.objective == "dpo"
    if not dpo:
        succeeded("assign-credit", str(run), *small(name))
    succeeded("train", str(run), *small(name), "--model", POLICY)
    stage = read_json(run / "manifest.json", Manifest).stages["train"]
    assert stage.settings["train"]["learning_rate"] == settings.train.learning_rate
    metrics: list[Any] = list(read_records(run / "metrics.jsonl", DpoMetrics if dpo else TrainMetrics))
    assert metrics
    assert all(math.isfinite(line.loss) and math.isfinite(line.grad_norm) for line in metrics)
    assert any(line.grad_norm > 0 for line in metrics)
    adapter = settings.train.lora.rank > 0
    assert (run / "checkpoint/adapter_config.json").exists() is adapter
    weights = run / "checkpoint" / ("adapter_model" if adapter else "model")
    start = Path(POLICY) / "model.safetensors"
    assert weights.with_suffix(".safetensors").read_bytes() != start.read_bytes()


@pytest.mark.slow
def test_react_really_evaluates(folder: Path) -> None:
    words = ("eval", *small("react-alfworld"), "--model", POLICY, "--split", "L0", "-o", "runs/react")
    succeeded(*words)
    assert len(Path("runs/react/evaluation/L0.jsonl").read_text(encoding="utf-8").splitlines()) == 2
