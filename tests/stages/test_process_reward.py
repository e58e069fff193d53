"""A process reward model from training to credit: `train` makes one, `rollout --prm` asks it, the loop learns from its scores."""

import shutil
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
import torch
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.records.files import read_json, read_records, write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import PolicySettings
from agentcli.records.types import Credit
from agentcli.training.critic import ANSWERS, QUESTION, read_scores
from agentcli.training.metrics import ProcessRewardMetrics
from command_line import agentcli, trees_of
from refusal import refused
from safetensors.torch import load_file
from toy_policy import POLICY, ROLLOUT, chained_on

pytestmark = pytest.mark.slow

SETTINGS = "{learning_rate: 3.0e-3, rows_per_update: 16, beta: 0.0, epochs: 6, save_every_updates: 1}"
TRAIN = ("train", "plain", *POLICY, "--set", "train.objective=process-reward", "-q")
PRM = ("--prm", "prm/checkpoint")
LOOP = ("run", "--preset", "./toy.yaml", "--model", "sft/checkpoint", "--credit", "grpo-prm", "--iterations", "2", "-q")
CHAIN = [
    ("assign-credit", "plain", "--method", "grpo", "-q"),
    (*TRAIN, "-o", "prm"),
    (*ROLLOUT, *PRM, "-o", "scored"),
    ("assign-credit", "scored", "--method", "grpo-prm", "-q"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return chained_on(base, tmp_path_factory.mktemp("prm") / "made", SETTINGS, CHAIN)


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what was made, which is the working directory."""
    shutil.copytree(made, tmp_path / "made", symlinks=True)
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def test_it_learns_which_steps_lead_to_success(folder: Path) -> None:
    lines = list(read_records(Path("prm/metrics.jsonl"), ProcessRewardMetrics))
    passes = [[line.loss for line in lines if line.epoch == epoch] for epoch in (0, 5)]
    assert fmean(passes[1]) < 0.7 * fmean(passes[0])
    locked = [
        step for tree in trees_of("scored") if tree.task.kind == "locked" for step in tree.steps if step.parent is None
    ]
    taken = [float(step.score) for step in locked if step.action == "take key"]
    others = [float(step.score) for step in locked if step.action != "take key"]
    assert fmean(taken) > fmean(others) + 0.2


def test_a_score_is_of_prompt_and_response_and_changes_nothing_else(folder: Path) -> None:
    scored, plain = trees_of("scored"), trees_of("plain")
    scores: dict[tuple[str, str], object] = {}
    for tree in scored:
        for step in tree.steps:
            assert scores.setdefault((step.prompt, step.response), step.score) == step.score
            step.score = msgspec.UNSET
    assert len(set(scores.values())) > 20
    assert scored == plain
    record = RunDirectory(Path("scored")).finished("rollout")
    assert record is not None
    assert "prm/checkpoint/model.safetensors" in record.inputs


def test_scores_do_not_depend_on_who_shares_a_batch(folder: Path) -> None:
    alone = (*ROLLOUT, *PRM, "--concurrency", "1", "--set", "policy.batch_rows=8", "-o", "alone")
    assert agentcli(*alone).code == 0
    assert Path("alone/trees.jsonl").read_bytes() == Path("scored/trees.jsonl").read_bytes()


def test_the_loop_learns_from_scores(folder: Path) -> None:
    assert agentcli(*LOOP, *PRM, "-o", "loop").code == 0
    for iteration in ("loop/iteration_000", "loop/iteration_001"):
        rows = [
            row for credit in read_records(Path(iteration) / "credit/grpo-prm.jsonl", Credit) for row in credit.steps
        ]
        assert any(row.parts["action"] for row in rows)
    first, second = (load_file(Path(f"loop/iteration_00{n}/checkpoint/model.safetensors")) for n in (0, 1))
    assert any(not torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", ["TokenClassification", "SequenceClassification"])
@pytest.mark.parametrize("labels", [1, 2])
def test_a_classifier_of_transformers_scores_steps(kind: str, labels: int, folder: Path) -> None:
    """The number of one label, or the chance of the second of two, as the model itself gives them."""
    import transformers

    torch.manual_seed(0)
    loader = getattr(transformers, f"AutoModelFor{kind}")
    network = loader.from_pretrained("sft/checkpoint", num_labels=labels, pad_token_id=0).eval()
    tokenizer = load_tokenizer("sft/checkpoint")
    network.save_pretrained("classifier")
    tokenizer.save_pretrained("classifier")
    assert agentcli(*ROLLOUT, "--prm", "classifier", "--tasks", "2", "-o", "classified").code == 0
    step = trees_of("classified")[0].steps[0]
    turns = [{"role": "user", "content": step.prompt}, {"role": "assistant", "content": step.response}]
    ids = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
    with torch.no_grad():
        logits = network(torch.tensor([ids])).logits
    last = logits[0, -1] if kind.startswith("Token") else logits[0]
    expected = last[0] if labels == 1 else last.softmax(-1)[1]
    assert step.score == pytest.approx(float(expected), abs=1e-5)


def test_a_model_that_answers_is_asked_for_yes_or_no(folder: Path) -> None:
    """RewardFlow's form. The tiny policy knows neither word: these stand in the place of two that it knows."""
    shutil.copytree("sft/checkpoint", "asked")
    words = Path("asked/tokenizer.json")
    named = read_json(words, dict)
    vocabulary = named["model"]["vocab"]
    kept = [word for word in vocabulary if word.isalpha() and len(word) > 2][:2]
    for word, answer in zip(kept, ANSWERS, strict=True):
        vocabulary[answer] = vocabulary.pop(word)
    write_json(words, named)
    reading = read_scores("asked", PolicySettings())
    tree = trees_of("scored")[0]
    step = msgspec.structs.replace(tree.steps[0], prompt="You see a key.", response="take key")
    ids = reading.ids(tree, step)
    assert ids == reading.ids(tree, step)
    assert ids != reading.ids(tree, msgspec.structs.replace(step, response="go east"))
    assert "{prompt}" in QUESTION
    with torch.no_grad():
        logits = load_model("asked")(torch.tensor([ids])).logits[0, -1]
        rows = torch.tensor([ids + [0] * 3, ids + [0] * 3])
        (score, again) = reading.values(reading.network, rows, torch.tensor([len(ids) - 1, len(ids) - 1]))
    no, yes = (logits[vocabulary[answer]] for answer in ANSWERS)
    assert float(score) == float(again) == pytest.approx(float(torch.stack([no, yes]).softmax(0)[1]), abs=1e-5)


def test_refusals(folder: Path) -> None:
    prm = ("--prm", "sft/checkpoint", "-o", "x")
    refused(agentcli(*ROLLOUT, *prm), 3, ("rollout.prm", "sft/checkpoint"))
    refused(agentcli(*ROLLOUT, "--prm", "./nowhere", "-o", "x"), 4, "rollout.prm", "--prm")
    refused(agentcli(*ROLLOUT, "--prm", "nowhere", "-o", "x"), 4, "rollout.prm", "--prm")
    refused(agentcli("rollout", "-c", "toy.yaml", "--model", "prm/checkpoint", "-o", "x"), 3, "prm/checkpoint", "--prm")
    card = Path("prm/checkpoint/critic.json")
    card.write_text(card.read_text(encoding="utf-8").replace("response", "prompt"), encoding="utf-8")
    refused(agentcli(*ROLLOUT, *PRM, "-o", "x"), 3, "prm/checkpoint", "process-reward")
    refused(agentcli(*LOOP, "-o", "x"), 2, "grpo-prm", "rollout.prm=DIR")
    refused(
        agentcli(*LOOP, *PRM, "--set", "train.objective=process-reward", "-o", "x"),
        2,
        "process-reward",
        "train.objective=NAME",
    )
    refused(agentcli(*TRAIN, "--set", "train.options.target=retrun", "-o", "x"), 3, "retrun", "train.options.target")
