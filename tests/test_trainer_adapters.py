"""The adapters of examples/ in the real verl, SkyRL and prime-rl; skipped, by name, where one is not installed.

None of the three is an extra of agentcli: they pin other versions of torch and transformers. Install one with
`pip install --no-deps` beside what it imports, prime-rl from its repository.
"""

import asyncio
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from agentcli import step_advantages, token_advantages

EXAMPLES = Path(__file__).parents[1] / "examples"
STATES = [["hall", "attic"], ["hall", "cellar"], ["hall", "attic"], ["hall", "cellar"]]
MASKS = [[1, 1, 0, 1], [1, 0, 1, 1], [1, 0, 0, 1], [1, 0, 1, 0]]
LISTS = {
    "groups": ["a"] * 4,
    "rewards": [1.0, 0.0, 0.0, 0.0],
    "states": STATES,
    "success": [True, False, False, False],
}


@pytest.fixture(autouse=True)
def _beside_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    if sys.version_info < (3, 12):
        # SkyRL and prime-rl ask for Python 3.12, where pydantic takes typing's own.
        import typing_extensions

        monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)


def rewards() -> torch.Tensor:
    """The reward of the first of four rollouts, at its last token."""
    tokens = torch.zeros(4, 4)
    tokens[0, 3] = 1.0
    return tokens


def expected(method: str, **switches: Any) -> torch.Tensor:
    return torch.tensor(token_advantages(MASKS, LISTS, method, **switches))


@pytest.mark.slow
def test_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its grpo is ours, and state keys travel through TransferQueue to its trainer's _compute_advantage."""
    pytest.importorskip("verl", reason="verl is not installed")
    import numpy
    import ray
    import transfer_queue
    import verl_advantages  # noqa: F401
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    found = {}
    for name in ("grpo", "agentcli/grpo"):
        tensors = {"token_level_rewards": rewards(), "response_mask": torch.tensor(MASKS)}
        data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": numpy.array(["a", "a", "b", "b"], object)})
        found[name] = compute_advantage(data, name, config=OmegaConf.create({})).batch["advantages"]
    torch.testing.assert_close(found["agentcli/grpo"], found["grpo"], atol=1e-6, rtol=0)

    ray.init(num_cpus=8, include_dashboard=False, logging_level="ERROR", object_store_memory=100_000_000)
    try:
        transfer_queue.init(OmegaConf.create({"enable": True}))
        keys = [f"a_{row}_0" for row in range(4)]
        fields = [
            {
                "uid": "a",
                "response_mask": torch.tensor(MASKS[row]),
                "rm_scores": rewards()[row],
                "extra_fields": {"states": STATES[row], "success": row == 0, "turn_scores": []},
            }
            for row in range(4)
        ]
        written = list_of_dict_to_tensordict(fields)
        transfer_queue.kv_batch_put(keys=keys, fields=written, tags=[{}] * 4, partition_id="train")
        kind = get_trainer_cls("agentcli")
        trainer = object.__new__(kind)
        algorithm = {"adv_estimator": "agentcli/rewardflow", "use_kl_in_reward": False, "gamma": 1.0, "lam": 1.0}
        algorithm["agentcli"] = {"gamma": 0.8}
        settings = {"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 4}}}
        trainer.config = OmegaConf.create(settings)
        batch = transfer_queue.KVBatchMeta(keys=keys, tags=[{}] * 4, partition_id="train")
        trainer._compute_advantage(batch, {})
        got = transfer_queue.kv_batch_get(keys=keys, partition_id="train", select_fields=["advantages"])
        rows = torch.stack(list(got["advantages"].unbind()))
        torch.testing.assert_close(rows, expected("rewardflow", gamma=0.8), atol=1e-6, rtol=0)
    finally:
        transfer_queue.close()
        ray.shutdown()


@pytest.mark.slow
def test_skyrl() -> None:
    """Its grpo and rloo are ours, and state keys travel from env_metrics to its trainer's advantages."""
    pytest.importorskip("skyrl", reason="skyrl is not installed")
    import skyrl_advantages
    from skyrl.backends.skyrl_train.utils import ppo_utils
    from skyrl.train.config import SkyRLTrainConfig

    settings = SkyRLTrainConfig()
    for name in ("grpo", "rloo"):
        both = [
            ppo_utils.compute_advantages_and_returns(
                token_level_rewards=rewards(),
                response_mask=torch.ones(4, 4),
                index=["a", "a", "a", "a"],
                adv_estimator=estimator,
                config=settings.trainer.algorithm,
            )[0]
            for estimator in (name, f"agentcli/{name}")
        ]
        torch.testing.assert_close(both[1], both[0], atol=1e-6, rtol=0)

    settings.trainer.algorithm.advantage_estimator = "agentcli/rewardflow"
    settings.trainer.train_batch_size = settings.trainer.policy_mini_batch_size = 1
    settings.generator.n_samples_per_prompt = 4
    trainer = object.__new__(skyrl_advantages.CreditRayTrainer)
    trainer.cfg, trainer.all_metrics = settings, {}
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    # Three workers share four rows: two rows fill up the batch.
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 3)
    carried = [{"score": 1.0, "agentcli": {"states": STATES[n], "success": n == 0}} for n in range(4)]
    output = {
        "prompt_token_ids": [[5, 6]] * 4,
        "response_ids": [[7] * 4] * 4,
        "rewards": rewards().tolist(),
        "loss_masks": MASKS,
        "env_metrics": carried,
    }
    batch = trainer.convert_to_training_input(output, ["a"] * 4)
    batch["values"] = None
    found = trainer.compute_advantages_and_returns(batch)["advantages"]
    torch.testing.assert_close(found[:4], expected("rewardflow"), atol=1e-6, rtol=0)
    assert not found[4:].any()


@pytest.mark.slow
def test_prime_rl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its grpo is ours, and traces that branch keep their branches."""
    pytest.importorskip("prime_rl", reason="prime_rl is not installed")
    import prime_rl_advantages as adapter
    from prime_rl.configs.algorithm import GRPOAlgoConfig
    from prime_rl.orchestrator.algo import build_algorithm
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm

    ours = build_algorithm(GRPOAlgoConfig(), None)
    group = [episode(*row) for row in zip(LISTS["rewards"], STATES, LISTS["success"], (0, 0, 1, 0), strict=True)]
    asyncio.run(ours.finalize_group(group))
    branched = {
        "groups": [0] * 4,
        "rewards": [[0.0, 1.0], [0.0, 0.0], [0.0] * 3, [0.0, 0.0]],
        "parents": [[None, 0], [None, 0], [None, 0, 0], [None, 0]],
        "states": [*STATES[:2], [*STATES[2], STATES[2][1]], STATES[3]],
        "success": [[True] * 2, [False] * 2, [False] * 3, [False] * 2],
    }
    for one, advantages in zip(group, step_advantages(branched, "rewardflow"), strict=True):
        assigned = [node.advantages for node in one.traces[0].nodes if any(node.mask)]
        assert assigned == [[gain] * len(tokens) for gain, tokens in zip(advantages, assigned, strict=True)]

    monkeypatch.setattr(adapter, "METHOD", "grpo")
    monkeypatch.setattr(adapter, "SWITCHES", {"normalise": "mean"})
    found = []
    for algorithm in (ours, GRPOAlgorithm(GRPOAlgoConfig(), None)):
        group = [episode(reward, ["a"] * steps, False, 0) for reward, steps in ((1.0, 2), (0.0, 3), (0.25, 1))]
        asyncio.run(algorithm.finalize_group(group))
        found.append([gain for one in group for node in one.traces[0].nodes for gain in node.advantages or []])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def episode(reward: float, states: list[str], success: bool, branches: int) -> Any:
    """An episode of verifiers: an answer and a tool's message for each state, and answers beside the second one."""
    import verifiers.v1 as vf

    nodes: list[Any] = []

    def add(message: Any, mask: list[bool], parent: int | None) -> None:
        tokens = {"token_ids": [0] * len(mask), "mask": mask, "logprobs": [0.0] * len(mask)}
        nodes.append(vf.MessageNode(message=message, sampled=any(mask), parent=parent, **tokens))

    add(vf.UserMessage(content="q"), [False], None)
    for state in states:
        add(vf.AssistantMessage(content="go"), [False, True, True], len(nodes) - 1)
        add(vf.ToolMessage(content=state, tool_call_id="x"), [False], len(nodes) - 1)
    for _ in range(branches):
        add(vf.AssistantMessage(content="stop"), [True], 2)
    trace = vf.Trace[vf.TaskData](
        task=vf.TraceTask(type="Task", data=vf.TaskData(idx=0, prompt=None)),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=nodes,
        rewards={"reward": vf.Reward(score=reward)},
        ok=True,
        info={"agentcli": {"states": [*states, *states[1:2] * branches], "success": success}},
    )
    place = {"env": vf.EnvInfo(id="e", name="e"), "group": vf.GroupInfo(id="g")}
    return vf.Episode(task=trace.task, traces=[trace], **place)
