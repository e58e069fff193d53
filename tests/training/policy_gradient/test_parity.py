"""The policy-gradient trainer against TRL's GRPOTrainer on the same rows, update by update.

Every aggregation, full, LoRA and at temperature 0.4, and every switch of the objective, with accumulation, KL and clipping at
work, in one process and in two; each update starts from the weights that the ones before it left, so that the optimisers agree
too. `parity_trl.py` says what is TRL's.
"""

import json
import random
from pathlib import Path

import pytest
import torch
from agentcli.records.training_settings import LoraSettings
from agentcli.training.loop.checkpoints import load_trainable
from pair_trees import FORKED, GROUP, pair_tree
from parity_worker import CASES, COMMON, COOL, RANK, SWITCHES, run_cases
from processes import BY_TWO, well_ended
from safetensors.torch import load_file
from tiny_rollout import at_temperatures, write
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow
NAMES = [f"{aggregate} {kind}" for aggregate, kind in CASES]
UPDATES = 6
PROCESSES = 2
RELATIVE = dict.fromkeys(("full", "lora", *SWITCHES), 0) | {"cool": 4e-6, "weighted": 1e-6}
"""Tolerated beside the absolute difference: at T = 0.4 gradients are 1 / T times as large, and rounding errors with them. With
weights, each side computes the old log-probabilities itself, too."""
UNCLIPPED = "token weighted"
"""The ratio to recomputed log-probabilities begins at 1."""


@pytest.fixture(scope="module")
def folder(rollout, tmp_path_factory):
    """What the workers read: a stale policy's trees, a reference and an adapter that are not the policy."""
    folder = tmp_path_factory.mktemp("parity")
    (folder / "model").symlink_to(rollout.model)
    (folder / "credit.jsonl").symlink_to(rollout.credit)
    policy = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    shapes = [FORKED, GROUP, FORKED]
    write(
        folder / "pairs.jsonl",
        [pair_tree(number, shape, policy, rollout.tokenizer) for number, shape in enumerate(shapes)],
    )
    for name, temperature in (("trees", 1.0), ("cool", COOL)):
        rng = random.Random(1)
        trees = at_temperatures(rollout.tree_list, [temperature], policy, rollout.tokenizer)
        for tree in trees:
            for step in tree.steps:
                step.logprobs = [min(0.0, value + rng.gauss(0, 0.3)) for value in step.logprobs]
        write(folder / f"{name}.jsonl", trees)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        reference = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
        for parameter in reference.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
        adapter = load_trainable(str(folder / "model"), LoraSettings(rank=RANK, alpha=8))
        for parameter in adapter.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    reference.save_pretrained(folder / "reference")
    rollout.tokenizer.save_pretrained(folder / "reference")
    adapter.save_pretrained(folder / "adapter")
    return folder


@pytest.fixture(scope="module")
def two_processes(folder):
    """What each rank of a torchrun of two found."""
    worker = Path(__file__).parents[2] / "support" / "parity_worker.py"
    well_ended(*BY_TWO, worker, folder, str(PROCESSES))
    return [json.loads((folder / f"{PROCESSES}-{rank}.json").read_text()) for rank in range(PROCESSES)]


@pytest.fixture(scope="module")
def one_process(folder):
    return run_cases(folder, 1)


@pytest.fixture(params=[1, PROCESSES], ids=["one process", "two processes"])
def found(request):
    return request.getfixturevalue("one_process") if request.param == 1 else request.getfixturevalue("two_processes")[0]


@pytest.mark.parametrize("case", NAMES)
def test_losses_and_gradient_norms_are_trls(found, case):
    ours, trl = found[case]["ours"], found[case]["trl"]
    assert len(ours) == len(trl) == UPDATES
    for name, tolerance in (("loss", 1e-6), ("grad_norm", 1e-5)):
        expected = [line[name] for line in trl]
        assert [line[name] for line in ours] == pytest.approx(expected, abs=tolerance, rel=RELATIVE[case.split()[1]])


@pytest.mark.parametrize("case", NAMES)
def test_kl_clipping_and_the_optimiser_are_at_work(found, case):
    """On both sides; otherwise the agreement above would say little."""
    for lines in found[case].values():
        for line in lines:
            assert line["clip"] > 0.05 or case == UNCLIPPED
            assert COMMON["beta"] * line["kl"] > 1e-3
            assert line["grad_norm"] > COMMON["max_grad_norm"]
        first, later = lines[: UPDATES // 2], lines[UPDATES // 2 :]
        assert abs(sum(line["loss"] for line in first) - sum(line["loss"] for line in later)) > 1e-2


def test_aggregations_differ(one_process):
    """What agrees per aggregation is not one and the same figure."""
    for kind in ("full", "lora", "cool"):
        losses = [one_process[f"{aggregate} {kind}"]["ours"][1]["loss"] for aggregate in ("token", "step", "sequence")]
        assert min(abs(one - other) for one, other in zip(losses, losses[1:] + losses[:1], strict=True)) > 1e-3


@pytest.mark.parametrize("kind", SWITCHES)
def test_every_switch_changes_the_loss(one_process, kind):
    (aggregate,) = (aggregate for aggregate, other in CASES if other == kind)
    plain, switched = (one_process[f"{aggregate} {which}"]["ours"][1]["loss"] for which in ("full", kind))
    assert abs(plain - switched) > 1e-4


@pytest.mark.parametrize("case", NAMES)
def test_two_processes_are_one(one_process, two_processes, case):
    for name, tolerance in (("loss", 1e-6), ("grad_norm", 1e-5), ("kl", 1e-6)):
        alone = [line[name] for line in one_process[case]["ours"]]
        for rank in two_processes:
            assert [line[name] for line in rank[case]["ours"]] == pytest.approx(
                alone, abs=tolerance, rel=RELATIVE[case.split()[1]]
            )


def test_two_processes_are_one_for_dpo(one_process, two_processes, folder):
    alone, together = one_process["dpo"], two_processes[0]["dpo"]
    assert [line["pairs"] for line in together] == [3, 3, 2] * 2
    for name, tolerance in (("loss", 1e-6), ("margin", 1e-5), ("accuracy", 0), ("tokens", 0), ("grad_norm", 1e-5)):
        assert [line[name] for line in together] == pytest.approx(
            [line[name] for line in alone], abs=tolerance, rel=0
        ), name
    assert len({line["loss"] for line in alone}) == UPDATES
    one, two = (load_file(folder / f"dpo-{processes}" / "model.safetensors") for processes in (1, PROCESSES))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-4, rtol=0)


def test_a_launcher_that_starts_too_few_is_noticed(folder):
    with pytest.raises(AssertionError):
        run_cases(folder, PROCESSES)
