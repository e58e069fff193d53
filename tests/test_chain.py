"""The whole chain as a user types it: real ALFWorld engines, a tiny model made from scratch, every stage through the command line.

One chain is run once for the module, at a scale of seconds: bathrooms, one task type, little clutter. Nothing here asks for
a gain: what is checked is files, determinism, and that every stage takes what the one before it left.
"""

import json
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_json, read_records, sha256_file, write_json
from agentcli.records.trees import leaves, paths, validate_tree
from agentcli.records.types import Credit, Episode, Manifest, Outcome, Record, Tree, Validity
from agentcli.training.metrics import SftMetrics, TrainMetrics
from command_line import Answer, succeeded

pytestmark = pytest.mark.slow

LEAVES, TASKS, HORIZON = 4, 4, 10
PRESET = f"""
environment:
  max_steps: {HORIZON}
  options:
    kinds: [pick_and_place_simple]
    rooms: [bathroom]
    scenes_per_room: 4
    clutter: 3
    distractor_instances: 1
    games: {{train: 60, valid_seen: 6, valid_unseen: 4}}
prompt: {{style: compact}}
policy: {{temperature: 1.0, max_tokens: 24}}
demos: {{count: 120, overlook: 0.5, wander: 0.2, stray: 0.1, keep: all}}
sft: {{updates: 200, learning_rate: 3.0e-3}}
rollout: {{leaves: {LEAVES}, tasks_per_step: {TASKS}}}
train: {{learning_rate: 1.0e-4, rows_per_update: 32, beta: 0.01}}
run: {{iterations: 2}}
"""
START = "runs/sft/checkpoint"


def agentcli(*words: str) -> Answer:
    return succeeded(*words, "-q")


def rollout(out: str, *words: str) -> Path:
    agentcli("rollout", "--preset", "./smoke.yaml", "--model", START, "--iteration", "0", "-o", out, *words)
    return Path(out)


def trees_of(run: str | Path) -> list[Tree]:
    found = list(read_records(Path(run) / "trees.jsonl", Tree))
    for number, tree in enumerate(found, 1):
        validate_tree(tree, f"{run}:{number}")
    return found


def credit_of(run: str | Path, name: str) -> list[Credit]:
    return list(read_records(Path(run) / "credit" / f"{name}.jsonl", Credit))


def train_statistics(run: str) -> dict[str, Any]:
    return read_json(Path(run, "manifest.json"), Manifest).stages["train"].statistics


def results_of(run: str | Path) -> dict[str, str]:
    """sha256 of what an iteration leaves: trees, credit, weights and optimiser state."""
    names = ("trees.jsonl", "credit/grpo.jsonl", "checkpoint/model.safetensors", "optimizer.safetensors")
    return {name: sha256_file(Path(run) / name) for name in names}


@pytest.fixture(scope="module", autouse=True)
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the chain was run for two iterations, stage by stage as in scripts/chain.sh, and evaluated."""
    folder = tmp_path_factory.mktemp("chain")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
            patch.delenv(name)
        patch.setenv("AGENTCLI_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        Path("smoke.yaml").write_text(PRESET, encoding="utf-8")
        agentcli("demos", "--preset", "./smoke.yaml", "-o", "runs/demos")
        agentcli("sft", "runs/demos", "--model", "tiny", "-o", "runs/sft")
        model = START
        for iteration in ("0", "1"):
            run = f"apart/iteration_00{iteration}"
            agentcli("rollout", "--preset", "./smoke.yaml", "--model", model, "--iteration", iteration, "-o", run)
            agentcli("assign-credit", run)
            agentcli("train", run, "--model", model, "--set", f"train.reference={START}")
            model = f"{run}/checkpoint"
        yield folder


@pytest.fixture(scope="module")
def together(chain: Path) -> Path:
    """The same two iterations by `agentcli run`."""
    agentcli("run", "--preset", "./smoke.yaml", "--model", START, "--iterations", "2", "-o", "together")
    return Path("together")


@pytest.fixture(scope="module")
def spark(chain: Path) -> Path:
    return rollout("runs/spark", "--method", "spark", "--roots", "2", "--branch", "fixed:0.5")


def test_every_stage_leaves_files_that_decode() -> None:
    assert len(trees_of("runs/demos")) == 120
    assert all(not step.token_ids for tree in trees_of("runs/demos") for step in tree.steps)
    for number in (0, 1):
        run = Path(f"apart/iteration_00{number}")
        trees, credit = trees_of(run), credit_of(run, "grpo")
        assert [tree.task.id for tree in trees] == [given.task for given in credit]
        assert [len(tree.steps) for tree in trees] == [len(given.steps) for given in credit]
        assert len(trees) == TASKS
        assert all(len(leaves(tree)) == LEAVES and max(map(len, paths(tree))) <= HORIZON for tree in trees)
        for name, stage in read_json(run / "manifest.json", Manifest).stages.items():
            assert stage.inputs, name
            assert stage.inputs == {file: sha256_file(Path(file)) for file in stage.inputs}, name


def lines(path: str, kind: type[Record]) -> list[Any]:
    return list(read_records(Path(path), kind))


def test_losses_fall_and_training_stays_finite() -> None:
    sft = lines("runs/sft/metrics.jsonl", SftMetrics)
    assert sft[-1].update == 200
    assert sft[-1].loss < 0.2 * sft[0].loss
    assert sft[-1].token_accuracy > 0.9
    for number in (0, 1):
        written = lines(f"apart/iteration_00{number}/metrics.jsonl", TrainMetrics)
        steps = sum(len(tree.steps) for tree in trees_of(f"apart/iteration_00{number}"))
        assert sum(line.rows + line.rows_skipped for line in written) == steps
        for line in written:
            assert all(map(math.isfinite, (line.loss, line.grad_norm, line.ratio_max)))
            assert min(line.kl, line.entropy) >= 0
    assert any(line.grad_norm > 0 for line in written)


def test_the_trainer_computes_what_the_sampler_sampled() -> None:
    for number in (0, 1):
        statistics = train_statistics(f"apart/iteration_00{number}")
        assert statistics["logprob_gap"]["tokens"] > 100
        assert statistics["logprob_gap"]["max"] < 1e-4
        assert statistics["optimizer_carried"] == (number == 1)


def test_the_policy_answers_in_the_right_form() -> None:
    steps = [step for number in (0, 1) for tree in trees_of(f"apart/iteration_00{number}") for step in tree.steps]
    assert sum(step.validity is Validity.MALFORMED for step in steps) < 0.1 * len(steps)
    assert {"think", "explore"} <= {step.tag for step in steps}
    assert not any(step.error for step in steps)
    assert all(len(step.token_ids) == len(step.logprobs) > 0 for step in steps)


@pytest.mark.parametrize("checkpoint", [START, "apart/iteration_001/checkpoint"])
def test_plain_transformers_loads_the_checkpoint_and_generates(checkpoint: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), AutoModelForCausalLM.from_pretrained(checkpoint)
    prompt = trees_of("runs/demos")[0].steps[0].prompt
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**inputs, max_new_tokens=24, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert answer[-1] == tokenizer.eos_token_id
    assert "<action>" in tokenizer.decode(answer, skip_special_tokens=True)


@pytest.mark.parametrize("method", [pytest.param("chain", marks=pytest.mark.slow), "spark"])
def test_one_seed_gives_the_same_bytes_again_and_at_any_concurrency(method: str) -> None:
    runs = [rollout(f"seeds/{method}-{n}", "--method", method, "--concurrency", n) for n in ("1", "32")]
    first, second = ((run / "trees.jsonl").read_bytes() for run in runs)
    assert first == second
    if method == "chain":
        assert first == Path("apart/iteration_000/trees.jsonl").read_bytes()


def test_the_loop_gives_what_the_separate_stages_give(together: Path) -> None:
    for number in (0, 1):
        assert results_of(together / f"iteration_00{number}") == results_of(f"apart/iteration_00{number}")
    assert (together / "checkpoint").resolve() == (together / "iteration_001/checkpoint").resolve()


def test_a_loop_that_lost_its_last_stage_redoes_only_that(together: Path) -> None:
    last = together / "iteration_001"
    before = results_of(last)
    kept = [together / "iteration_000/checkpoint/model.safetensors", last / "trees.jsonl", last / "credit/grpo.jsonl"]
    inodes = [path.stat().st_ino for path in kept]
    manifest = read_json(last / "manifest.json", Manifest)
    del manifest.stages["train"]
    write_json(last / "manifest.json", manifest)
    shutil.rmtree(last / "checkpoint")
    agentcli("run", "--preset", "./smoke.yaml", "--model", START, "--iterations", "2", "-o", "together", "--resume")
    assert results_of(last) == before
    assert [path.stat().st_ino for path in kept] == inodes


def test_spark_grows_trees_within_the_budget_that_share_prefixes(spark: Path) -> None:
    trees = trees_of(spark)
    assert all(2 <= len(leaves(tree)) <= LEAVES for tree in trees)
    assert sum(step.parent is None for step in trees[0].steps) == 2
    assert sum(sum(map(len, paths(tree))) - len(tree.steps) for tree in trees) > 0
    record = read_json(spark / "manifest.json", Manifest).stages["rollout"]
    assert record.ledger is not None
    assert record.ledger.forks > 0
    assert record.ledger.steps == sum(len(tree.steps) for tree in trees)


def test_grpo_credit_sums_to_zero_over_the_trajectories_of_a_group() -> None:
    for tree, given in zip(trees_of("apart/iteration_000"), credit_of("apart/iteration_000", "grpo"), strict=True):
        advantages = {row.step: row.advantage for row in given.steps}
        total = sum(sum(advantages[step.id] for step in path) / len(path) for path in paths(tree))
        assert total == pytest.approx(0, abs=1e-9)


def test_every_method_credits_every_step_of_a_tree(spark: Path) -> None:
    for name in ("grpo", "spark"):
        agentcli("assign-credit", "--method", name, str(spark))
    agentcli("assign-credit", "--method", "rewardflow", "--overwrite", str(spark))
    trees = trees_of(spark)
    by_method = {name: credit_of(spark, name) for name in ("grpo", "spark", "rewardflow")}
    for tree, grpo, own, flow in zip(trees, *by_method.values(), strict=True):
        ids = [step.id for step in tree.steps]
        assert ids == [row.step for row in grpo.steps] == [row.step for row in own.steps]
        rewards = defaultdict(list)
        for path in paths(tree):
            for step in path:
                rewards[step.id].append(10.0 * (path[-1].outcome is Outcome.SUCCESS))
        for row in own.steps:
            assert row.parts["reward"] == pytest.approx(sum(rewards[row.step]) / len(rewards[row.step]))
        for plain, row in zip(grpo.steps, flow.steps, strict=True):
            assert row.parts["trajectory"] == plain.advantage
            assert row.advantage == row.parts["action"] + row.parts["trajectory"]
            assert row.parts["gain"] == row.parts["next_value"] - row.parts["value"]
    assert any(row.parts["action"] for given in by_method["rewardflow"] for row in given.steps)


def test_state_graphs_are_files_that_networkx_reads(spark: Path) -> None:
    import networkx

    agentcli("assign-credit", "--method", "rewardflow", "--graph", "--overwrite", str(spark))
    names = sorted((spark / "graphs").iterdir())
    assert {path.suffix for path in names} == {".graphml", ".dot", ".json"}
    for number, tree in enumerate(trees_of(spark), 1):
        (file,) = (spark / "graphs").glob(f"{number:05d}-*.graphml")
        graph = networkx.read_graphml(file)
        assert graph.graph["task"] == tree.task.id
        assert 1 < graph.number_of_nodes() <= len(tree.steps) + 2
        kinds = [kind for _, kind in graph.nodes(data="kind")]
        assert ("success" in kinds) == any(step.outcome is Outcome.SUCCESS for step in tree.steps)


def test_evaluations_walk_the_whole_panel_once(chain: Path) -> None:
    run = Path("apart/iteration_001")
    for words, label, samples in [
        (("eval", "--split", "L0", "--samples", "2"), "L0", 2),
        (("pass-at-k", "--split", "L1", "--n", "3", "--k", "2"), "pass-at-k-L1", 3),
        (("test-time-branch", "--split", "L1", "--branching", "3"), "test-time-branch-L1", 1),
    ]:
        result = json.loads(agentcli(words[0], str(run), *words[1:], "--json").stdout)
        episodes = lines(f"{run}/evaluation/{label}.jsonl", Episode)
        panel = json.loads(succeeded("env", "panel", "-c", "smoke.yaml", "--split", words[2]).stdout)
        assert [(row.task, row.sample) for row in episodes] == [
            (task["id"], sample) for task in panel["tasks"] for sample in range(samples)
        ]
        assert result["panel"]["sha256"] == panel["sha256"]
        won = sum(row.outcome is Outcome.SUCCESS for row in episodes)
        assert result["success"]["rate"] == pytest.approx(won / len(episodes))
        assert result["model"] == str(run / "checkpoint")
        assert read_json(run / f"evaluation/{label}.json", dict).items() <= result.items()
    assert list(read_json(run / "evaluation/pass-at-k-L1.json", dict)["pass_at_k"]) == ["1", "2"]


@pytest.mark.slow
def test_an_adapter_is_a_checkpoint_like_any_other(chain: Path) -> None:
    """train with LoRA leaves an adapter; rollout, eval and the next train take it as they take a whole model."""
    rank = ("--set", "train.lora.rank=4")
    agentcli("train", "apart/iteration_000", *rank, "-o", "lora")
    assert not Path("lora/checkpoint/model.safetensors").exists()
    assert json.loads(agentcli("eval", "lora", "--split", "L1", "--json").stdout)["model"] == "lora/checkpoint"
    agentcli("rollout", "--preset", "./smoke.yaml", "--model", "lora/checkpoint", "--iteration", "1", "-o", "lora/next")
    agentcli("assign-credit", "lora/next")
    agentcli("train", "lora/next", *rank)
    statistics = train_statistics("lora/next")
    assert statistics["optimizer_carried"]
    assert statistics["logprob_gap"]["max"] < 1e-4
    adapted = ("--model", START, "--adapter", "lora/checkpoint")
    agentcli("rollout", "--preset", "./smoke.yaml", *adapted, "--iteration", "0", "-o", "lora/beside")
    plan = json.loads(agentcli("eval", "lora/beside", "--split", "L1", "--dry-run", "--json").stdout)
    assert plan["inputs"]["model"] == "lora/checkpoint"
    weights = [Path(run, "checkpoint/adapter_model.safetensors") for run in ("lora", "lora/next")]
    assert sha256_file(weights[0]) != sha256_file(weights[1])
