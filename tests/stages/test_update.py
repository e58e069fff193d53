"""Where an iteration is trained: in the loop's process or in processes of its own, with the same bytes; what is refused before
anything is sampled; and what is still in memory when the sampler goes on."""

import asyncio
import gc
import json
import weakref
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, DataError, MissingError
from agentcli.exploration.settings import as_method, decode
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.protocol import Policy
from agentcli.records import runs
from agentcli.records.runs import RunDirectory, hash_inputs, known_hashes, remember_hashes
from agentcli.records.settings import RolloutSettings, RunSettings
from agentcli.records.types import Step, Tree
from agentcli.stages import backend
from agentcli.stages.backend import LocalBackend
from agentcli.stages.layers import find_preset
from agentcli.stages.plan import plain
from agentcli.stages.remote import fault_of
from agentcli.stages.sampling import SamplerPlan
from agentcli.stages.update import _environment, refuse_unreadable, training_processes
from agentcli.training import critic
from agentcli.training.critic import Appraiser, StepReader, read_values
from agentcli.training.policy_gradient.training import PolicyTraining
from bad_input_runs import ROLLOUT, START, folder
from command_line import agentcli
from grown_runs import toy
from kill_and_resume import digest
from refusal import refused
from resting import heard
from sample_records import stage_record

__all__ = ["folder"]

LOOP = ("run", "--preset", "./toy.yaml", "--model", START)
BUILT = (*LOOP, "-o", "runs/loop", "-q")
CHILD = "run.train_in=child"
TIMES = {"seconds", "started", "finished", "outputs", "layers"}


def see(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    """Makes a machine with so many GPUs of this one, as far as counting goes."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(
    ("gpus", "train_in", "wanted", "processes"),
    [
        (0, "auto", 1, 0),
        (0, "auto", 2, 2),
        (0, "process", 1, 0),
        (0, "child", 1, 1),
        (1, "auto", 1, 1),
        (1, "process", 1, 0),
        (2, "auto", 1, 1),
        (2, "auto", 2, 2),
        (8, "auto", 1, 1),
        (8, "child", 8, 8),
    ],
)
def test_processes_of_their_own_train_on_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: int, train_in: Any, wanted: int, processes: int
) -> None:
    see(monkeypatch, gpus)
    assert training_processes(RunSettings(train_in=train_in, processes=wanted)) == processes


@pytest.mark.parametrize(
    ("gpus", "changes", "names", "remedy"),
    [
        (2, ["run.train_in=process"], ["run.train_in", "2 GPUs"], ["run.train_in=child", "CUDA_VISIBLE_DEVICES=0"]),
        (8, ["run.train_in=process"], ["run.train_in", "8 GPUs"], ["run.train_in=child", "CUDA_VISIBLE_DEVICES=0"]),
        (0, ["run.train_in=process", "run.processes=2"], ["run.processes: 2"], ["run.train_in=child"]),
        (2, ["run.processes=4"], ["run.processes: 4"], ["run.processes=2"]),
        (8, ["train.sharding=fsdp"], ["train.sharding"], ["run.processes=N"]),
    ],
)
def test_what_gpus_cannot_do_is_refused_before_anything_is_sampled(
    monkeypatch: pytest.MonkeyPatch, folder: Path, gpus: int, changes: list[str], names: list[str], remedy: list[str]
) -> None:
    see(monkeypatch, gpus)
    sets = [f"--set={change}" for change in changes]
    refused(agentcli(*LOOP, "-o", "new", *sets), 2, names, remedy)
    assert not (folder / "new").exists()


def test_where_nothing_is_readable_demonstrations_are_named_for_a_form_of_its_own(tmp_path: Path) -> None:
    """With the preset of the loop, or its world: else they would be of another one."""
    run, record = RunDirectory(tmp_path), stage_record()
    record.counts = {"responses": 3, "malformed_responses": 3}
    record.settings = plain(decode({"environment": {"name": "tunnel"}}))
    layers: list[list[str]] = [[str(find_preset("quickstart-tunnel")), "mine.yaml", "--set x=y.yaml"], ["--leaves 2"]]
    for names, remedy in zip(layers, ("--preset quickstart-tunnel -c mine.yaml", "--env tunnel"), strict=True):
        record.layers = names
        run.record_stage("rollout", record)
        run.record_stage("train", record)
        for method, hint in (("dpepo", f"agentcli demos {remedy} --set"), ("chain", "train.learning_rate")):
            refused(partial(refuse_unreadable, run, as_method(RolloutSettings(), method)), 1, str(run.path), hint)


def test_processes_see_as_many_of_the_loop_s_gpus_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, 8)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _environment(2, 1)["CUDA_VISIBLE_DEVICES"] == "0,1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,GPU-7")
    assert _environment(1, 1)["CUDA_VISIBLE_DEVICES"] == "5"
    assert _environment(3, 1)["CUDA_VISIBLE_DEVICES"] == "5,3,GPU-7"


def entries(run: str) -> list[dict[str, Any]]:
    """What manifests say, without times, and without where it was trained."""
    kept = []
    for path in sorted(Path(run).rglob("manifest.json")):
        for entry in json.loads(path.read_bytes())["stages"].values():
            entry["settings"].pop("run")
            kept.append({name: value for name, value in entry.items() if name not in TIMES})
    return kept


def test_a_child_leaves_what_this_process_leaves(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The same command, so that even the manifests are the same; what it prints is not in the way of results."""
    here = agentcli(*BUILT, "--overwrite")
    expected, said = digest(Path("runs/loop")), entries("runs/loop")
    monkeypatch.setenv("AGENTCLI_RUN__TRAIN_IN", "child")
    there = agentcli(*BUILT, "--overwrite")
    assert (here.code, there.code, there.stdout, there.stderr) == (0, 0, here.stdout, here.stderr)
    assert digest(Path("runs/loop")) == expected
    assert entries("runs/loop") == said
    log = Path("runs/loop/iteration_000/logs/train-001.log").read_text(encoding="utf-8")
    assert log.endswith("INFO finished\n")


def test_a_child_s_refusal_is_the_loop_s(folder: Path) -> None:
    """An optimiser state of another model: both say so in one line, with the same code."""
    Path("runs/sft/optimizer.safetensors").write_bytes(Path("runs/lora/optimizer.safetensors").read_bytes())
    answers = [agentcli(*LOOP, "-q", "-o", name, *more) for name, more in (("a", ()), ("b", ("--set", CHILD)))]
    lines = [refused(answer, 3, names="runs/sft/optimizer.safetensors") for answer in answers]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (DataError("x:3: bad; mend it"), DataError, "process 1: x:3: bad; mend it"),
        (MemoryError("no room"), MemoryError, "no room"),
        (RuntimeError("std::bad_alloc"), MemoryError, "bad_alloc"),
        (ModuleNotFoundError("no", name="bitsandbytes"), MissingError, "pip install"),
        (KeyError("k"), AgentCliError, "KeyError: 'k' (unexpected"),
    ],
)
def test_an_error_stays_what_it_is_on_its_way(error: Exception, kind: type[Exception], words: str) -> None:
    sent = fault_of(error, "process 1: ").error()
    assert isinstance(sent, kind)
    assert words in str(sent)


def test_nothing_that_was_trained_is_alive_when_the_sampler_loads(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """With the collector off, cycles stay until somebody frees them."""
    trained: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    save, load = PolicyTraining.save, TransformersPolicy.load

    def saving(training: PolicyTraining) -> None:
        trained.extend(weakref.ref(parameter) for parameter in training.model.parameters())
        save(training)

    async def loading(policy: TransformersPolicy, checkpoint: str) -> None:
        alive.append(sum(parameter() is not None for parameter in trained))
        await load(policy, checkpoint)

    monkeypatch.setattr(PolicyTraining, "save", saving)
    monkeypatch.setattr(TransformersPolicy, "load", loading)
    gc.disable()
    try:
        assert agentcli(*LOOP, "--iterations", "2", "-o", "new", "-q").code == 0
    finally:
        gc.enable()
    assert trained
    assert alive == [0]


def test_a_checkpoint_is_hashed_once(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    times = Counter[str]()
    hashing = runs.sha256_file

    def counted(path: Path) -> str:
        times[str(path)] += 1
        return hashing(path)

    monkeypatch.setattr(runs, "sha256_file", counted)
    evaluations = ("--set", "run.evaluate_every=1", "--iterations", "2")
    assert agentcli(*LOOP, *evaluations, "-o", "new", "-q").code == 0
    weights = [f"{place}/model.safetensors" for place in (START, "new/iteration_000/checkpoint")]
    assert [times[name] for name in weights] == [1, 1]


def test_hashes_are_those_of_the_files_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    (one,) = hash_inputs([file]).values()
    known = known_hashes([tmp_path])
    assert list(known.values()) == [one]
    file.write_bytes(b"22")
    assert known_hashes([file]) == {}
    (two,) = hash_inputs([file]).values()
    assert two != one
    remember_hashes(dict.fromkeys(known_hashes([file]), "of another process"))
    assert list(hash_inputs([file]).values()) == ["of another process"]


@pytest.mark.parametrize(
    ("keeps", "expected"),
    [(True, ["start", "rest", "load", "rest", "close"]), (False, ["start", "close", "start", "close"])],
)
def test_a_policy_rests_only_where_it_is_needed_again(
    monkeypatch: pytest.MonkeyPatch, keeps: bool, expected: list[str]
) -> None:
    said = heard(monkeypatch)
    settings = toy("chain")
    world = make_world(settings.environment)

    async def work() -> None:
        backend = LocalBackend(EnginePool(settings.environment), keeps)
        for _ in range(2):
            async with backend.sampler(SamplerPlan(settings=settings, world=world, model="model")):
                pass
        await backend.aclose()

    asyncio.run(work())
    assert said == expected


def test_a_critic_is_opened_before_an_engine_takes_the_rest_of_its_gpu(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    opened: list[str] = []
    make, start = Appraiser.__init__, backend.start_policy

    def making(self: Appraiser, *given: Any) -> None:
        opened.append("critic")
        make(self, *given)

    def starting(*given: Any) -> Policy:
        opened.append("policy")
        return start(*given)

    monkeypatch.setattr(Appraiser, "__init__", making)
    monkeypatch.setattr(backend, "start_policy", starting)
    assert agentcli(*ROLLOUT, "--critic", START, "-q").code == 0
    assert opened == ["critic", "policy"]


def test_a_critic_knows_what_ends_the_policys_turns(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    known = []

    def asked(reader: partial[list[int]], tree: Tree, step: Step) -> list[int]:
        (chat,) = reader.args
        known.append(chat.ends)
        return reader(tree, step)

    def reading(*given: Any, **more: Any) -> StepReader:
        reader = read_values(*given, **more)
        assert isinstance(reader.ids, partial)
        return replace(reader, ids=partial(asked, reader.ids))

    (Path(START) / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 7]}))
    monkeypatch.setattr(critic, "read_values", reading)
    assert agentcli(*ROLLOUT, "--critic", START, "-q").code == 0
    assert known
    assert all({3, 7} <= set(ends) for ends in known)
