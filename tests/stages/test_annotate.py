"""A teacher adds reasoning to given trajectories: what changes and what does not, bad answers, resuming, bad input."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.cli.app import build
from agentcli.prompts.tagged import read_tagged, write_tagged
from agentcli.records.files import RecordWriter, read_json, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.trees import validate_tree
from agentcli.records.types import Manifest, Step, StopReason, Tree
from chat_server import Answer, ChatServer, Script, completion
from typer.testing import CliRunner

SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 8, options: {tasks: 4, length: 3}}
prompt: {style: compact}
policy: {endpoint: {retries: 0, request_seconds: 20}}
demos: {policy: search, count: 6, noise: 0.3, keep: all}
"""
DECIDED = re.compile(r"The action is:\n(.*)\n")


@pytest.fixture(autouse=True)
def _given(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Demonstrations in `given`, reduced to (observation, action) pairs: bare actions as responses, no prompts."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Path("toy.yaml").write_text(SETTINGS)
    result = agentcli("demos", "-o", "played")
    assert result.exit_code == 0, result.output
    with RecordWriter(Path("given/trees.jsonl")) as writer:
        for tree in trees_of("played"):
            bare = {"prompt": "", "tag": None}
            steps = [msgspec.structs.replace(step, response=step.action or "", **bare) for step in tree.steps]
            writer.write(msgspec.structs.replace(tree, steps=steps))


def agentcli(*words: str) -> Any:
    return CliRunner().invoke(build(), [words[0], "-c", "toy.yaml", *words[1:], "-q"])


def annotate(server: ChatServer, out: str, *words: str) -> Any:
    return agentcli("demos", "--annotate", "given", "--policy", "openai", "--base-url", server.url, "-o", out, *words)


def trees_of(run: str) -> list[Tree]:
    trees = list(read_records(Path(run, "trees.jsonl"), Tree))
    for tree in trees:
        validate_tree(tree)
    return trees


def counts_of(run: str) -> dict[str, int]:
    return read_json(Path(run, "manifest.json"), Manifest).stages["annotate"].counts


def teach(body: dict[str, Any], before: int) -> Answer:
    """Explores at the start, and belongs to its prompt."""
    prompt = body["messages"][0]["content"]
    (action,) = DECIDED.findall(prompt)
    tag = "explore" if "You wake up" in prompt.rpartition("Current observation")[2] else "think"
    return completion(write_tagged(tag, f"I want\nto {action}", action))


def on(action: str, otherwise: Script) -> Callable[[dict[str, Any], int], Answer]:
    """`teach`, with another answer where this action was taken."""

    def script(body: dict[str, Any], before: int) -> Answer:
        taken = DECIDED.findall(body["messages"][0]["content"]) == [action]
        return otherwise(body, before) if taken and callable(otherwise) else teach(body, before)

    return script


def without_annotation(step: Step) -> Step:
    return msgspec.structs.replace(step, prompt="", response="", tag=None, mask=None)


def test_steps_stay_and_get_reasoning() -> None:
    with ChatServer(teach) as server:
        result = annotate(server, "out")
    assert result.exit_code == 0, result.output
    given, made = trees_of("given"), trees_of("out")
    assert [tree.task for tree in made] == [tree.task for tree in given]
    noise = 0
    for before, after in zip(given, made, strict=True):
        assert list(map(without_annotation, before.steps)) == list(map(without_annotation, after.steps))
        for old, new in zip(before.steps, after.steps, strict=True):
            if old.mask == "noise":
                assert new == old
                noise += 1
                continue
            read = read_tagged(new.response)
            assert (read.tag, read.actions, new.mask) == (new.tag, {1: old.action}, None)
            assert read.reasoning == f"I want to {old.action}"
            assert read.tag == ("explore" if "You wake up" in old.observation else "think")
            assert old.observation in new.prompt
            assert (new.token_ids, new.stop) == ([], StopReason.NONE)
    assert noise > 0
    counts = counts_of("out")
    steps = sum(len(tree.steps) for tree in made)
    assert counts == {
        "trees": 6,
        "owed": 0,
        "steps": steps,
        "annotated": steps - noise,
        "explore": sum(step.tag == "explore" for tree in made for step in tree.steps),
        "not annotated": 0,
        "left": noise,
    }
    record = read_json(Path("out/manifest.json"), Manifest).stages["annotate"]
    assert record.statistics["explore_by_step"]["1-5"] > 0
    assert record.ledger is not None
    assert record.ledger.generated_tokens == 3 * counts["annotated"]
    assert len(server.bodies) == counts["annotated"]


def test_given_prompts_are_kept_and_the_teacher_sees_the_past_and_nothing_else() -> None:
    with RecordWriter(Path("prompted/trees.jsonl")) as writer:
        for tree in trees_of("given"):
            steps = [msgspec.structs.replace(step, prompt=f"prompt {step.id}") for step in tree.steps]
            writer.write(msgspec.structs.replace(tree, steps=steps))
    with ChatServer(teach) as server:
        words = ("--annotate", "prompted", "--policy", "openai", "--base-url", server.url)
        result = agentcli("demos", *words, "-o", "out")
    assert result.exit_code == 0, result.output
    made = trees_of("out")
    assert all(step.prompt == f"prompt {step.id}" for tree in made for step in tree.steps)
    step = next(step for step in made[0].steps if step.parent is not None and step.mask is None)
    asked = [body["messages"][0]["content"] for body in server.bodies]
    own = [prompt for prompt in asked if f"Current observation: {step.observation}" in prompt]
    assert any(f"The action is:\n{step.action}\n" in prompt for prompt in own)
    assert any("Steps taken so far" in prompt for prompt in own)
    assert not any(step.next_observation in prompt for prompt in own)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (write_tagged("think", "better so", "jump"), "the action was changed"),
        ("I would go east.", "no reasoning tag; expected one of <think>, <explore>"),
        ("<think> a </think>", "no <action> tag"),
    ],
)
def test_a_bad_answer_is_asked_again_with_what_was_wrong(bad: str, problem: str) -> None:
    def script(body: dict[str, Any], before: int) -> Answer:
        told = f"could not be used: {problem}." in body["messages"][0]["content"]
        return teach(body, before) if told else completion(bad)

    with ChatServer(script) as server:
        result = annotate(server, "out")
    assert result.exit_code == 0, result.output
    counts = counts_of("out")
    assert counts["not annotated"] == 0
    assert len(server.bodies) == 2 * counts["annotated"]
    assert len({body["seed"] for body in server.bodies}) > counts["annotated"], "another seed for another answer"


def test_a_step_without_a_usable_answer_is_masked_and_nothing_else() -> None:
    with ChatServer(on("go east", lambda body, before: completion("no"))) as server:
        result = annotate(server, "out")
    assert result.exit_code == 0, result.output
    lost = [
        (old, new)
        for before, after in zip(trees_of("given"), trees_of("out"), strict=True)
        for old, new in zip(before.steps, after.steps, strict=True)
        if old.action == "go east" and old.mask is None
    ]
    assert lost
    assert all((new.mask, new.response, new.tag) == ("not annotated", old.response, None) for old, new in lost)
    counts = counts_of("out")
    assert counts["not annotated"] == len(lost)
    (log,) = Path("out/logs").iterdir()
    assert f"{len(lost)} of {len(lost) + counts['annotated']} steps" in log.read_text()
    assert counts["annotated"] > 0
    assert len(server.bodies) == counts["annotated"] + 3 * len(lost)


@pytest.mark.parametrize("text", ["", None, "  \n", "no"])
def test_a_teacher_without_one_usable_answer_is_an_error(text: str | None) -> None:
    with ChatServer(lambda body, before: completion(text)) as server:
        result = annotate(server, "out")
        asked = sum(step.mask is None for tree in trees_of("given") for step in tree.steps)
        assert len(server.bodies) == 3 * asked
        again = annotate(server, "out", "--resume")
        assert len(server.bodies) == 3 * asked
    for failed in (result, again):
        assert (failed.exit_code, failed.stderr.count("\n")) == (1, 1)
        assert failed.stderr.startswith("error: no step of ")
        assert "given/trees.jsonl " in failed.stderr
        assert f"({asked} asked" in failed.stderr
        assert "; name another teacher" in failed.stderr
    assert repr((text or "").strip()) in result.stderr, "the answer is shown"
    assert all(step.mask is not None for tree in trees_of("out") for step in tree.steps)
    assert not Path("out/manifest.json").exists()
    with ChatServer(teach) as server:
        assert annotate(server, "out", "--overwrite").exit_code == 0
    assert counts_of("out")["not annotated"] == 0


def test_a_torn_last_line_of_the_input_is_a_tree_still_owed() -> None:
    path = Path("given/trees.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    with ChatServer(teach) as server:
        assert annotate(server, "out").exit_code == 0
    assert counts_of("out")["trees"] == 5


def test_what_could_not_be_asked_is_left_out_and_resume_asks_again() -> None:
    with ChatServer(on("take key", lambda body, before: Answer(status=500))) as server:
        first = annotate(server, "out", "--concurrency", "1")
    assert first.exit_code == 0, first.output
    takers = [
        number
        for number, tree in enumerate(trees_of("given"))
        if any(step.action == "take key" and step.mask is None for step in tree.steps)
    ]
    assert counts_of("out")["owed"] == len(takers) > 0
    assert len(trees_of("out")) == 6 - len(takers)
    with ChatServer(teach) as healed:
        again = annotate(healed, "out", "--resume")
        assert again.exit_code == 0, again.output
        asked, manifest = len(healed.bodies), Path("out/manifest.json").read_bytes()
        nothing = annotate(healed, "out", "--resume")
        assert nothing.exit_code == 0, nothing.output
        assert len(healed.bodies) == asked, "nothing is owed"
        assert Path("out/manifest.json").read_bytes() == manifest
        first_asks = {(body["messages"][0]["content"], body["seed"]) for body in healed.bodies}
        assert annotate(healed, "whole").exit_code == 0
        assert first_asks <= {(body["messages"][0]["content"], body["seed"]) for body in healed.bodies[asked:]}
    assert asked == sum(step.mask is None for number in takers for step in trees_of("given")[number].steps)
    assert Path("out/trees.jsonl").read_bytes() == Path("whole/trees.jsonl").read_bytes()
    assert counts_of("out") == counts_of("whole")


@pytest.mark.parametrize("cut", [1, 900, 3000, -1, -40])
def test_an_interrupted_annotation_resumes_to_the_same_bytes(cut: int) -> None:
    trees = Path("out/trees.jsonl")
    with ChatServer(teach) as server:
        assert annotate(server, "out").exit_code == 0
        whole = trees.read_bytes()
        trees.write_bytes(whole[:cut])
        RunDirectory(Path("out")).forget_stage("annotate")
        result = annotate(server, "out", "--resume", "--concurrency", "2")
    assert result.exit_code == 0, result.output
    assert trees.read_bytes() == whole
    assert counts_of("out")["trees"] == 6


def test_trees_that_are_alike_are_annotated_alike_and_each_once() -> None:
    lines = Path("given/trees.jsonl").read_bytes().splitlines(keepends=True)
    Path("given/trees.jsonl").write_bytes(b"".join([lines[0], lines[1], lines[0]]))
    with ChatServer(teach) as server:
        assert annotate(server, "out").exit_code == 0
        whole = Path("out/trees.jsonl").read_bytes()
        made = whole.splitlines(keepends=True)
        assert made[0] == made[2]
        Path("out/trees.jsonl").write_bytes(made[0])
        RunDirectory(Path("out")).forget_stage("annotate")
        assert annotate(server, "out", "--resume").exit_code == 0
    assert Path("out/trees.jsonl").read_bytes() == whole


def test_an_endpoint_that_is_down_ends_with_4_and_writes_no_trees() -> None:
    with ChatServer([]) as server:
        pass
    result = annotate(server, "out")
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert "--base-url" in result.stderr
    assert not Path("out/trees.jsonl").exists()


def test_a_teacher_that_fails_everywhere_is_an_error() -> None:
    keep_lines("given", 1)
    with ChatServer(lambda body, before: teach(body, before) if before == 0 else Answer(status=400)) as server:
        result = annotate(server, "out")
    assert result.exit_code == 1
    assert all(part in result.stderr for part in ("no trajectory", "given/trees.jsonl "))
    assert "answered 400" in result.stderr
    assert not Path("out/manifest.json").exists()


def test_a_teacher_that_fails_everywhere_takes_no_other_ones_trees_for_its_own() -> None:
    with ChatServer(teach) as server:
        assert annotate(server, "out").exit_code == 0
    before = Path("out/manifest.json").read_bytes()
    with ChatServer(lambda body, before: teach(body, before) if before == 0 else Answer(status=400)) as server:
        result = annotate(server, "out", "--overwrite", "--set", "policy.max_tokens=99")
    assert (result.exit_code, "no trajectory" in result.stderr) == (1, True)
    assert Path("out/manifest.json").read_bytes() == before


def keep_lines(run: str, count: int) -> None:
    path = Path(run, "trees.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]))


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
def test_trees_of_another_world_are_refused(dry: tuple[str, ...]) -> None:
    path = Path("given/trees.jsonl")
    path.write_text(path.read_text().replace('"world":"toy"', '"world":"elsewhere"'))
    with ChatServer(teach) as server:
        result = annotate(server, "out", *dry)
    assert result.exit_code == 3
    assert all(part in result.stderr for part in ("trees.jsonl:1: task.world: ", "'elsewhere'"))
    assert server.bodies == []
    assert not Path("out").exists()


def test_damaged_trees_are_refused_before_anything_is_asked() -> None:
    path = Path("given/trees.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1].replace('"id":0,', '"id":7,'))
    with ChatServer(teach) as server:
        result = annotate(server, "out")
    assert result.exit_code == 3
    assert "given/trees.jsonl:2: " in result.stderr
    assert "steps[0].id: is 7" in result.stderr
    assert server.bodies == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--annotate", "given"), 2, "demos --annotate: search answers no prompts; name a teacher: --policy openai"),
        (("--annotate", "given", "--policy", "expert"), 2, "expert answers no prompts"),
        (("--annotate", "given", "--count", "3"), 2, "--count has no effect with --annotate"),
        (("--annotate", "given", "--split", "test"), 2, "--split has no effect with --annotate"),
        (("--annotate", "nowhere"), 3, "nowhere: no such run directory"),
        (("--annotate", "empty"), 3, "empty/trees.jsonl: no such file"),
        (
            ("--annotate", "given/trees.jsonl"),
            3,
            "given/trees.jsonl: is a file; name the run directory that it lies in: given",
        ),
        (("--annotate", "given", "-c", "none.yaml"), 2, "none.yaml: cannot be read (No such file or directory)"),
        (
            ("--annotate", "given", "-c", "wrong.yaml"),
            2,
            "wrong.yaml: demos.noize: no such setting; did you mean demos.noise?",
        ),
        (("--annotate", "given", "-o", "given"), 2, "cannot be written into itself; choose another -o DIR"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
def test_what_cannot_be_annotated_is_refused(
    words: tuple[str, ...], code: int, message: str, dry: tuple[str, ...]
) -> None:
    Path("empty").mkdir()
    Path("wrong.yaml").write_text("demos: {noize: 0.3}")
    before = sorted(Path().rglob("*"))
    given = list(words) if "--policy" in words or words == ("--annotate", "given") else [*words, "--policy", "openai"]
    extra = ["--base-url", "http://127.0.0.1:1/v1"] if "openai" in given else []
    result = agentcli("demos", *given, *extra, *(() if "-o" in words else ("-o", "out")), *dry)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
    assert message in result.stderr
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda whole: b"", "given/trees.jsonl: holds no trees; write some with: agentcli demos --resume -o given"),
        (
            lambda whole: whole[:40],
            "given/trees.jsonl: holds no trees; write some with: agentcli demos --resume -o given",
        ),
        (lambda whole: whole.replace(b'"prompt":"",', b'"prompt":"', 1), "given/trees.jsonl:1: JSON is malformed"),
    ],
    ids=["empty", "torn only line", "torn"],
)
def test_trees_that_are_none_are_refused(data: Callable[[bytes], bytes], message: str, dry: tuple[str, ...]) -> None:
    path = Path("given/trees.jsonl")
    path.write_bytes(data(path.read_bytes()))
    with ChatServer(teach) as server:
        result = annotate(server, "out", *dry)
    assert (result.exit_code, result.stdout, result.stderr.count("\n"), server.bodies) == (3, "", 1, [])
    assert f"error: {message}" in result.stderr
    assert not Path("out").exists()


def test_dry_run_counts_and_writes_nothing() -> None:
    with ChatServer(teach) as server:
        result = annotate(server, "out", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    assert '"counts": {"trees": 6}' in result.stdout
    assert server.bodies == []
    assert not Path("out").exists()
