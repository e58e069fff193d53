"""sft on several runs of demonstrations: the samples of all, in the order in which the runs are named; refusals; resuming.

Real trainings of a few updates on demonstrations of the toy world (bad_input_runs.py), through the command line.
"""

import json
from pathlib import Path

import pytest
from agentcli.records.files import read_json, read_records, sha256_file
from agentcli.records.types import Manifest, StageRecord, Step, Tree, Validity
from bad_input_runs import (
    DEMO_TREES,
    START,
    Damage,
    contents,
    edit_lines,
    folder,
    quietly,
    remove,
    torn_at_the_end,
    torn_inside,
    untouched,
    write,
)
from command_line import agentcli, succeeded
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

MORE_TREES = "runs/more/trees.jsonl"
ON = ("-c", "toy.yaml", "--seed", "0", "--model", START, "-o", "new")
"""The seed is named, or it is that of the first run."""
OFF = ("--set", "policy.chat_template_kwargs.enable_thinking=false")
THINKS = "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
BOTH = ("sft", "runs/demos", "runs/more", *ON)


def imitated(*files: str) -> list[Step]:
    """The steps that sft learns from."""
    trees = [tree for file in files for tree in read_records(Path(file), Tree)]
    return [
        step
        for tree in trees
        for step in tree.steps
        if step.mask is None and step.validity is Validity.VALID and step.response
    ]


def record(out: str = "new") -> StageRecord:
    return read_json(Path(out, "manifest.json"), Manifest).stages["sft"]


def weights(out: str) -> bytes:
    return Path(out, "checkpoint", "model.safetensors").read_bytes()


def learn(out: str, *runs: str) -> bytes:
    """The weights after sft on `runs`."""
    answer = quietly("sft", *runs, *ON[:-1], out)
    assert answer.code == 0, answer
    return weights(out)


def test_the_samples_of_all_runs_are_learned_in_the_order_of_the_arguments() -> None:
    """As from one file that holds the trees of both one after the other, and not as in another order or from one of them."""
    both = learn("both", "runs/demos", "runs/more")
    write("joined/trees.jsonl", Path(DEMO_TREES).read_bytes() + Path(MORE_TREES).read_bytes())()
    assert learn("as-one", "joined") == both
    assert learn("swapped", "runs/more", "runs/demos") != both
    assert learn("first", "runs/demos") != both
    statistics = record("both").statistics
    assert (statistics["trees"], statistics["samples"]) == (8 + 5, len(imitated(DEMO_TREES, MORE_TREES)))
    assert len(imitated(DEMO_TREES)) < statistics["samples"] > len(imitated(MORE_TREES)) > 0


def test_a_tiny_model_knows_the_words_of_all_runs() -> None:
    edit_lines(MORE_TREES, lambda lines: [line.replace(b"Here is a key", b"Here is a zebra") for line in lines])()
    for runs, known in ((("runs/demos",), False), (("runs/demos", "runs/more"), True)):
        assert quietly("sft", *runs, "-c", "toy.yaml", "--model", "tiny", "-o", "new", "--overwrite").code == 0
        vocabulary = json.loads(Path("new/checkpoint/tokenizer.json").read_bytes())["model"]["vocab"]
        assert any("zebra" in word for word in vocabulary) == known


def test_the_manifest_names_the_inputs_of_all_runs_with_their_hashes() -> None:
    learn("new", "runs/demos", "runs/more")
    inputs = list(record().inputs.items())
    assert inputs[:2] == [(path, sha256_file(Path(path))) for path in (DEMO_TREES, MORE_TREES)]
    assert f"{START}/model.safetensors" in dict(inputs)


def test_the_settings_are_those_of_the_first_run() -> None:
    assert (
        agentcli("demos", "-c", "toy.yaml", "--set", "prompt.history=2", "--count", "2", "-o", "runs/other").code == 0
    )
    for runs, history in ((("runs/demos", "runs/other"), 5), (("runs/other", "runs/demos"), 2)):
        answer = quietly("sft", *runs, "--model", START, "--set", "sft.updates=1", "-o", "new", "--overwrite")
        assert answer.code == 0, answer
        assert record().settings["prompt"]["history"] == history


@pytest.mark.parametrize("again", ["runs/demos", "./runs/demos/", "runs/more/../demos", "alias"])
def test_a_run_named_twice_is_refused(again: str) -> None:
    Path("alias").symlink_to("runs/demos")
    for dry in ((), ("--dry-run",)):
        said = "a run is named twice among runs/demos, runs/more, "
        refused(untouched(("sft", "runs/demos", "runs/more", again, *ON, *dry)), 2, said)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove("runs/more"), "runs/more: no such run directory"),
        (remove(MORE_TREES), f"{MORE_TREES}: no such file"),
        (write(MORE_TREES), f"{MORE_TREES}: holds no trees"),
        (edit_lines(MORE_TREES, torn_inside), f"{MORE_TREES}:2: "),
        (edit_lines(MORE_TREES, lambda lines: [lines[0][:200]]), f"{MORE_TREES}: holds no trees"),
    ],
    ids=["no run", "no trees", "empty", "torn", "torn only line"],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
def test_a_second_run_that_is_none_is_one_line_that_names_it(damage: Damage, said: str, dry: tuple[str, ...]) -> None:
    damage()
    refused(untouched((*BOTH, *dry)), 3, said)


def test_a_torn_last_line_of_the_second_run_is_a_tree_still_owed() -> None:
    edit_lines(MORE_TREES, torn_at_the_end)()
    learn("new", "runs/demos", "runs/more")
    assert record().statistics["trees"] == 8 + 4


def test_of_demonstrations_that_have_not_ended_it_says_so() -> None:
    assert "has not ended" not in agentcli("sft", "runs/demos", *ON[:-1], "whole").stderr
    Path("runs/demos/manifest.json").unlink()
    answer = succeeded("sft", "runs/demos", *ON[:-1], "part")
    assert "warning: runs/demos/trees.jsonl: demos has not ended; go on with: agentcli demos --resume" in answer.stderr


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "interrupted"])
def test_resumed_with_other_runs_it_is_refused(finished: bool) -> None:
    learn("new", "runs/demos", "runs/more")
    assert agentcli("demos", "-c", "toy.yaml", "--seed", "2", "--count", "5", "-o", "runs/third").code == 0
    if not finished:
        remove("new/manifest.json")()
        remove("new/checkpoint")()
    for runs, said in {
        ("runs/demos", "runs/third"): "runs/third/trees.jsonl was not among it",
        ("runs/demos", "runs/more", "runs/third"): "runs/third/trees.jsonl was not among it",
        ("runs/demos",): f"{MORE_TREES} is left out",
        ("runs/more", "runs/demos"): "the order is another",
    }.items():
        for dry in ((), ("--dry-run",)):
            refused(untouched(("sft", *runs, *ON, "--resume", *dry)), 2, said, "--resume")
    before = contents()
    answer = succeeded(*BOTH, "--resume")
    assert (contents() == before) == finished
    assert ("nothing is owed" in answer.stderr) == finished


def test_a_dry_run_counts_the_demonstrations_of_all_runs() -> None:
    before = contents()
    answer = quietly(*BOTH, "--dry-run", "--json")
    assert (answer.code, answer.stderr) == (0, ""), answer
    plan = json.loads(answer.stdout)
    assert plan["counts"] == {"demonstrations": 8 + 5}
    assert plan["inputs"] == {"demonstrations": f"{DEMO_TREES}, {MORE_TREES}", "model": START}
    assert contents() == before


def test_a_second_run_that_is_a_file_is_one_line() -> None:
    refused(quietly("sft", "runs/demos", MORE_TREES, *ON), 3, MORE_TREES)


def test_a_prompt_that_opens_the_reasoning_is_refused_or_switched_off() -> None:
    """Demonstrations that <explore> cannot go on after <think>. Switched off, all is as with a template without it."""
    plain = learn("plain", "runs/demos")
    asked = ("eval", "plain", "--split", "test", "--tasks", "2")
    assert agentcli(*asked).code == 0
    refused(untouched(("sft", "runs/demos", *ON, *OFF)), 2, "policy.chat_template_kwargs.enable_thinking", "--model")
    template = Path(START, "chat_template.jinja")
    source = template.read_text()
    template.write_text(source.replace("<|assistant|>{% endif %}", f"<|assistant|>{THINKS}{{% endif %}}"))
    refused(untouched(("sft", "runs/demos", *ON)), 3, f"{DEMO_TREES}:2: steps[0].response", " ".join(OFF))
    answer = quietly("sft", "runs/demos", *ON[:-1], "off", *OFF)
    assert answer.code == 0, answer
    assert weights("off") == plain
    # Inherited from the run.
    assert agentcli("eval", "off", *asked[2:]).code == 0
    trees = [Path(run, "evaluation/trees/test.jsonl").read_bytes() for run in ("plain", "off")]
    assert trees[0] == trees[1]
    on = OFF[1].replace("false", "true")
    refused(untouched(("sft", "runs/demos", *ON[:-1], "off", "--resume", "--set", on)), 2, "chat_template_kwargs")
