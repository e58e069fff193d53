"""Every world with every method, through the command line, at the smallest size; no gain is asked for.

scripts/worlds_by_methods.py makes docs/worlds.md of the results: each test is a cell.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml
from agentcli.credit.registry import method_names as credit_names
from agentcli.environments.protocol import Brief, Judging, Tutor, World
from agentcli.environments.registry import make_world, world_names
from agentcli.exploration.registry import method_names as growth_names
from agentcli.exploration.settings import VOTING, rollout_class
from agentcli.records.files import RecordWriter, read_json, read_records
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.trees import leaves, validate_tree
from agentcli.records.types import Credit, Episode, Manifest, Outcome
from agentcli.training.objectives import objective_names
from command_line import agentcli, succeeded, trees_of
from refusal import refused

pytestmark = pytest.mark.slow

SMALL = """
environment: {max_steps: 6}
policy: {temperature: 1.0, max_tokens: 48}
demos: {count: 24, keep: all}
sft: {updates: 60, learning_rate: 4.0e-3, samples_per_update: 16, tiny: {hidden: 64, layers: 2}}
rollout: {leaves: 4, tasks_per_step: 2}
train: {rows_per_update: 32}
evaluation: {tasks: 2, temperature: 1.0, n: 2, k: 2}
run: {iterations: 1}
"""
ENVIRONMENTS = {
    "alfworld": """
      kinds: [pick_and_place_simple]
      rooms: [bathroom]
      scenes_per_room: 4
      clutter: 3
      games: {train: 30, valid_seen: 4, valid_unseen: 4}
    """,
    "scienceworld": "heap_mb: 256",
    # A game takes seconds to make.
    "textworld": "seeds: {train: 4, valid: 2, test: 2}",
    "webshop": "{products: 40, kinds: [loafers, rug], tests: 20}",
}
"""environment.options of the worlds that are large without."""
WHERE = {"scienceworld": {"kind": ["find-animal", "find-living-thing"]}}
"""environment.where, likewise."""
GROWTH = sorted({*growth_names()} - {VOTING})
COMMANDS = ("eval", "pass-at-k", VOTING, "run", "env check")
Note: TypeAlias = Callable[[str, object], None]
POLICY = "runs/sft/checkpoint"
START = ("-c", "small.yaml", "--model", POLICY)


@pytest.fixture(scope="module", params=world_names())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The world; the working folder has a policy that learned there to act in one copy and in two."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    settings = yaml.safe_load(SMALL)
    options = yaml.safe_load(ENVIRONMENTS.get(name, "{}"))
    settings["environment"] |= {"name": name, "options": options, "where": WHERE.get(name, {})}
    made = make_world(EnvironmentSettings(name=name, options=options))
    settings["demos"]["policy"] = "random"
    if isinstance(made, Tutor):
        settings["demos"]["policy"] = "search"
    if isinstance(made, Brief):
        settings["prompt"] = {"style": "compact"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTCLI_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        Path("small.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        copies = ("--set", "rollout.method=dpepo", "--set", "rollout.copies=2")
        succeeded("demos", "-c", "small.yaml", "-q", "-o", "runs/demos")
        succeeded("demos", "-c", "small.yaml", *copies, "-q", "-o", "runs/parallel")
        succeeded("sft", "runs/demos", "runs/parallel", "-c", "small.yaml", "--model", "tiny", "-q", "-o", "runs/sft")
        yield made


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest, record_property: Note) -> None:
    """Notes world and method, for the table."""
    for name, value in request.node.callspec.params.items():
        record_property(name, value)


def rollout_of(method: str, out: str | None = None) -> tuple[str, ...]:
    """The command line that grows two trees of a method."""
    words = ["rollout", *START, "--method", method, "--tasks", "2", "-q", "-o", out or f"runs/{method}"]
    names = rollout_class(method).__struct_fields__
    for name in ("roots", "copies", "draws"):
        if name in names:
            words += ["--set", f"rollout.{name}=2"]
    return tuple(words)


def grown(method: str) -> str:
    """The run of a method, which is made once."""
    run = f"runs/{method}"
    if not Path(run).exists():
        succeeded(*rollout_of(method))
    return run


def appraised(model: str, by: str) -> str:
    """A run whose steps a critic or a process reward model appraised."""
    run = f"runs/chain-{by}"
    if not Path(run).exists():
        succeeded(*rollout_of("chain", run), f"--{by}", model)
    return run


def run_for(credit: str) -> str:
    """A run whose trees hold what a credit method reads."""
    if credit == "ppo":
        return appraised(POLICY, "critic")
    if credit == "grpo-prm":
        return appraised(f"{trained('process-reward')}/checkpoint", "prm")
    return grown(credit if credit in GROWTH else "chain")


def credited(method: str) -> str:
    """A run with the credit of a method, which is assigned once."""
    run = run_for(method)
    if not Path(run, "credit", f"{method}.jsonl").exists():
        succeeded("assign-credit", run, "--method", method, "-q")
    return run


def trained(objective: str) -> str:
    """The run of a training, which is done once."""
    out = f"runs/by-{objective}"
    if Path(out).exists():
        return out
    credit = {"ppo": "ppo", "offline-ppo": "ppo", "dpo": None}.get(objective, "grpo")
    run = credited(credit) if credit else half_won(grown("chain"))
    named = ("--credit", credit) if credit else ()
    succeeded("train", run, *START, *named, "--set", f"train.objective={objective}", "-q", "-o", out)
    return out


def half_won(run: str) -> str:
    """A copy of a run in which the first trajectory of every tree counts as a success: so small a policy wins nowhere."""
    copy = Path(f"{run}-half-won")
    copy.mkdir()
    with RecordWriter(copy / "trees.jsonl") as writer:
        for tree in trees_of(run):
            for number, leaf in enumerate(leaves(tree)):
                leaf.outcome = Outcome.FAILURE if number else Outcome.SUCCESS
            writer.write(tree)
    return str(copy)


def refused_setting(world: World, method: str) -> str | None:
    """The setting by which a world is refused that lacks what a method of growing needs; None where it lacks nothing."""
    if method not in GROWTH:
        return None
    kind = rollout_class(method)
    if kind.capability and not isinstance(world, kind.capability):
        return "rollout.method"
    judged = "judge" in kind.__struct_fields__
    return "rollout.judge.kind" if judged and not isinstance(world.engine(), Judging) else None


@pytest.mark.parametrize("method", GROWTH)
def test_trees_grow(world: World, method: str, record_property: Note) -> None:
    setting = refused_setting(world, method)
    if setting:
        record_property("refused", refused(agentcli(*rollout_of(method)), 2, setting))
        return
    run = grown(method)
    assert len(trees_of(run)) == 2
    for number, tree in enumerate(trees_of(run), 1):
        validate_tree(tree, f"{run}:{number}")
        assert all(leaf.outcome is not Outcome.ERRORED for leaf in leaves(tree)), tree
        assert all(step.token_ids for step in tree.steps)


@pytest.mark.parametrize("method", credit_names())
def test_credit_is_assigned(world: World, method: str, record_property: Note) -> None:
    if refused_setting(world, method):
        attempt = agentcli("assign-credit", grown("chain"), "--method", method, "-q")
        record_property("refused", refused(attempt, 3, remedy=f"--method {method}"))
        return
    run = credited(method)
    given = list(read_records(Path(run, "credit", f"{method}.jsonl"), Credit))
    assert [credit.task for credit in given] == [tree.task.id for tree in trees_of(run)]
    advantages = [row.advantage for credit in given for row in credit.steps]
    numbers = [advantage for advantage in advantages if advantage is not None]
    assert numbers
    assert all(map(math.isfinite, numbers))


@pytest.mark.parametrize("method", objective_names())
def test_a_policy_is_trained(world: World, method: str) -> None:
    run = Path(trained(method))
    assert "train" in read_json(run / "manifest.json", Manifest).stages
    assert (run / "checkpoint/model.safetensors").is_file()


@pytest.mark.parametrize("method", COMMANDS)
def test_the_rest_of_the_chain(world: World, method: str) -> None:
    out = f"runs/{method}"
    if method == "env check":
        succeeded("env", "check", world.card.name, "-c", "small.yaml", "--tasks", "2", "-q")
    elif method == "run":
        succeeded("run", *START, "-q", "-o", out)
        assert Path(out, "checkpoint/model.safetensors").is_file()
    else:
        succeeded(method, "runs/sft", "-c", "small.yaml", "-q", "-o", out)
        (file,) = Path(out, "evaluation").glob("*.jsonl")
        episodes = list(read_records(file, Episode))
        assert len({episode.task for episode in episodes}) == 2
        for episode in episodes:
            assert episode.outcome is not Outcome.ERRORED
            assert episode.score != world.card.best_reward or episode.outcome is Outcome.SUCCESS
