"""import: what verifiers and Inspect themselves wrote, and chats, become trees with which every command works."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from agentcli import read_trees
from agentcli.credit.registry import make
from agentcli.records.files import RecordWriter, read_json
from agentcli.records.trees import paths
from agentcli.records.types import TOO_LONG, Manifest, Outcome, Step, StopReason, Tree, Validity
from agentcli.reports.standing import Progress
from agentcli.stages.export import perform, plan
from command_line import agentcli, succeeded
from credit_trees import random_trees
from credit_trees import step as act
from credit_trees import tree as tree_with
from foreign import FORMATS, traces, unpacked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusal import refused
from toy_policy import made

STATES = ("gigpo", "rewardflow", "dpepo", "grpo-prm")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(unpacked(tmp_path))
    return tmp_path


def imported(form: str, *more: str, out: str = "runs/i", file: str | None = None) -> list[Tree]:
    answer = succeeded("import", file or FORMATS[form], "--from", form, "-o", out, *more)
    assert answer.stdout.startswith((out, "{")), answer
    return list(read_trees(Path(out)))


@pytest.mark.parametrize("form", FORMATS)
def test_a_group_is_a_tree_and_every_command_reads_it(form: str) -> None:
    trees = imported(form)
    assert len(trees) == 4
    assert all(len([step for step in tree.steps if step.parent is None]) == 3 for tree in trees)
    assert {tree.task.world for tree in trees} == {"imported"}
    assert all(tree.instruction.startswith("Reach room ") for tree in trees)
    (stage,) = json.loads(agentcli("show", "runs/i", "--json").stdout)["stages"]
    assert stage["model"] is None, "nobody here was asked"
    for words in (
        ("validate", "runs/i"),
        ("show", "runs/i"),
        ("show", "runs/i", "1"),
        ("assign-credit", "runs/i"),
        ("assign-credit", "runs/i", "--method", "treerpo"),
        ("assign-credit", "runs/i", "--explain", "best"),
        ("credit", "compare", "runs/i"),
        ("show", "runs/i", "--advice"),
        ("export", "runs/i", "--to", "parquet", "--credit", "grpo"),
        ("export", "runs/i", "--to", "messages", "--all"),
        ("export", "runs/i", "--to", "conversations", "--credit", "grpo"),
        ("view", "runs/i", "-o", "page.html"),
    ):
        succeeded(*words)
    answers = [step.response for tree in trees for step in tree.steps]
    assert form == "verifiers" or "sing <script>alert(1)</script>" in answers
    assert "<script>alert(1)</script>" not in Path("page.html").read_text(encoding="utf-8")


def test_a_trajectory_without_a_response_is_counted_and_said() -> None:
    chats = [{"messages": [{"role": "user", "content": "go"}], "reward": 0, "group": "g"}]
    answer = {"role": "assistant", "content": "gone"}
    chats.append({"messages": [*chats[0]["messages"], answer], "reward": 1, "group": "g"})
    Path("chats.jsonl").write_text("\n".join(map(json.dumps, chats)), encoding="utf-8")
    said = agentcli("import", "chats.jsonl", "--from", "messages", "-o", "runs/i")
    assert "without a response: 1 trajectories" in said.stderr
    record = read_json(Path("runs/i/manifest.json"), Manifest).stages["import"]
    assert record.statistics["lacking"]["responses"] == 1


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_missing_is_counted_said_and_refused(form: str) -> None:
    answer = agentcli("import", FORMATS[form], "--from", form, "-o", "runs/i")
    steps = sum(len(tree.steps) for tree in read_trees(Path("runs/i")))
    lacking = read_json(Path("runs/i/manifest.json"), Manifest).stages["import"].statistics["lacking"]
    tokens = 0 if form == "verifiers" else steps
    assert lacking == {"states": steps, "tags": steps, "token_ids": tokens, "logprobs": tokens, "responses": 0}
    assert f"without states: {steps} of {steps} steps" in answer.stderr
    assert ("without token_ids" in answer.stderr) == (form != "verifiers")
    for method in STATES:
        refusal = agentcli("assign-credit", "runs/i", "--method", method, "-q", "--set", "credit.outcome=success")
        refused(refusal, 3, ("runs/i/trees.jsonl:1", "steps[0].state"), ("--states observation", "--method grpo"))
    drawn = agentcli("assign-credit", "runs/i", "--method", "grpo", "-q", "--graph")
    refused(drawn, 3, ("runs/i/trees.jsonl:1", "steps[0].state"), ("--states observation", "--graph"))
    untagged = agentcli("assign-credit", "runs/i", "--method", "rlvmr", "-q", "--set", "credit.outcome=success")
    refused(untagged, 3, ("runs/i/trees.jsonl:1", "steps[].tag", "rlvmr"), "--method grpo")
    advice = json.loads(agentcli("show", "runs/i", "--advice", "--json").stdout)
    assert advice["shared"] == advice["returned"] == 0


@pytest.mark.parametrize("form", FORMATS)
def test_the_last_observation_stands_for_a_state_if_asked_for(form: str) -> None:
    trees = imported(form, "--states", "observation")
    by_text: dict[str, set[str]] = {}
    by_state: dict[str, set[str]] = {}
    for step in (step for tree in trees for step in tree.steps):
        by_text.setdefault(step.observation, set()).add(step.state)
        by_state.setdefault(step.state, set()).add(step.observation)
    assert len(by_text) > 1
    assert all(len(one) == 1 for one in (*by_text.values(), *by_state.values()))
    for tree in trees:
        for step in tree.steps:
            assert step.parent is None or tree.steps[step.parent].next_state == step.state or tree.ledger.forks
    for method in STATES[:3]:
        assert agentcli("assign-credit", "runs/i", "--method", method, "-q").code == 0
    assert agentcli("view", "runs/i", "-o", "page.html").code == 0


def test_the_tokens_are_those_of_the_graph(files: Path) -> None:
    """A step's prompt and response are its path in the graph, even where the renderer dropped the reasoning of old turns."""
    wanted = Counter[tuple[tuple[int, ...], tuple[float, ...]]]()
    dropped = 0
    for trace in traces(files):
        ways: list[list[int]] = []
        for node in trace["nodes"]:
            above = [] if node.get("parent") is None else ways[node["parent"]]
            ways.append([*above, *node["token_ids"]])
            if node["sampled"]:
                wanted[tuple(ways[-1]), tuple(node["logprobs"])] += 1
            dropped += node["message"]["role"] == "assistant" and not node["sampled"]
    trees = imported("verifiers")
    steps = [step for tree in trees for step in tree.steps]
    assert Counter(((*step.prompt_ids, *step.token_ids), tuple(step.logprobs)) for step in steps) == wanted
    assert dropped > 0
    assert max(len(way) for tree in trees for way in paths(tree)) == 5
    assert {step.stop for step in steps} == {StopReason.STOP, StopReason.LENGTH}
    # One trace a group was sampled twice at its second turn: two steps after one.
    assert [tree.ledger.forks for tree in trees] == [1, 1, 1, 1]


def test_a_prompt_may_repeat_several_turns_without_their_reasoning() -> None:
    """As templates do that drop it at the next message of the user: all nodes of the old turns are there twice."""

    def node(parent: int | None, role: str, content: str, thought: str | None = None, sampled: bool = False) -> dict:
        message = {"role": role, "content": content} | ({"reasoning_content": thought} if thought else {})
        tokens = {"token_ids": [7], "mask": [sampled], "logprobs": [-1.0] * sampled}
        return {"parent": parent, "message": message, "sampled": sampled, **tokens}

    nodes = [
        node(None, "user", "start"),
        node(0, "assistant", "one", "hm", sampled=True),
        node(1, "tool", "seen"),
        node(2, "assistant", "two", "so", sampled=True),
        node(0, "assistant", "one"),
        node(4, "tool", "seen"),
        node(5, "assistant", "two"),
        node(6, "user", "more"),
        node(7, "assistant", "three", "ah", sampled=True),
    ]
    trace = {"agent": {}, "nodes": nodes, "rewards": {"won": {"score": 1.0}}, "ok": True}
    Path("t.jsonl").write_text(json.dumps({"task": {"key": "t"}, "traces": [trace]}), encoding="utf-8")
    (tree,) = imported("verifiers", file="t.jsonl")
    assert [(step.parent, step.observation, step.action, step.outcome) for step in tree.steps] == [
        (None, "start", "one", None),
        (0, "seen", "two", None),
        (1, "more", "three", "success"),
    ]
    assert tree.steps[0].response == "<think>\nhm\n</think>\none"
    assert [len(step.prompt_ids) for step in tree.steps] == [1, 3, 5]


def test_both_forms_of_a_log_give_the_same_trees() -> None:
    zipped = imported("inspect")
    plain = imported("inspect", out="runs/json", file="log.json")
    assert sorted(zipped, key=lambda tree: tree.task.id) == sorted(plain, key=lambda tree: tree.task.id)


def test_an_import_with_token_ids_is_trained_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = str(made(tmp_path_factory.getbasetemp()) / "sft/checkpoint")
    imported("verifiers")
    refused(agentcli("train", "runs/i", "-q"), 2, remedy="--model")
    assert agentcli("assign-credit", "runs/i", "-q").code == 0
    answer = succeeded("train", "runs/i", "--model", model, "-o", "runs/t", "--json")
    trained = json.loads(answer.stdout)["statistics"]
    assert trained["rows"] == sum(len(tree.steps) for tree in read_trees(Path("runs/i")))
    imported("messages", out="runs/m")
    assert agentcli("assign-credit", "runs/m", "-q").code == 0
    refused(agentcli("train", "runs/m", "--model", model, "-o", "runs/n", "-q"), 3, "no step has token_ids")


@pytest.mark.parametrize("words", [("rollout", "--policy", "random"), ("eval", "runs/i", "--policy", "random")])
def test_what_would_play_it_is_refused(words: tuple[str, ...]) -> None:
    imported("messages")
    refused(agentcli(*words, "-q"), 2, "environment.name: imported", "--env")


def test_a_dry_run_counts_and_writes_nothing(files: Path) -> None:
    answer = succeeded("import", "traces.jsonl", "--from", "verifiers", "-o", "runs/i", "--dry-run", "--json")
    assert json.loads(answer.stdout)["counts"] == {"trees": 4, "trajectories": 16}
    assert not (files / "runs").exists()


def write(run: Path, *trees: Tree) -> None:
    with RecordWriter(run / "trees.jsonl") as writer:
        for tree in trees:
            writer.write(tree)


def again(run: Path, number: int) -> list[Tree]:
    """The trees of a run, exported and imported."""
    export = plan(run, "conversations", None)
    perform(export, Progress())
    file, out = str(export.out), f"{run}-{number}"
    assert agentcli("import", file, "--from", "messages", "-o", out, "--overwrite", "-q").code == 0
    return list(read_trees(Path(out)))


def carried(tree: Tree) -> tuple[object, ...]:
    """What chats carry of a tree."""

    def of_step(step: Step) -> tuple[object, ...]:
        texts = (step.response, step.observation, step.state, step.action, step.tag, step.validity)
        texts += (step.canonical, step.looked)
        end = (step.next_observation, step.next_state, step.next_canonical, step.outcome) if step.outcome else ()
        return step.id, step.parent, *texts, *end

    totals = [sum(step.reward for step in way) for way in paths(tree)]
    return tree.task.id, tree.task.kind, tree.instruction, [of_step(step) for step in tree.steps], totals


METHODS = ("grpo", "rloo", "gigpo", "rewardflow", "dpepo", "treerl", "treerpo", "carl", "spark", "arpo")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=random_trees(), texts=st.lists(st.text(max_size=8), min_size=24, max_size=24))
def test_an_export_imported_again_is_the_same_tree(tree: Tree, texts: list[str], files: Path) -> None:
    for step, text in zip(tree.steps, texts, strict=False):
        step.response, step.moves = text, []
        step.observation = texts[0] if step.parent is None else tree.steps[step.parent].next_observation
        step.action = None if step.validity is Validity.MALFORMED else step.action or "go"
        step.mask, step.looked, step.canonical = None, len(text) > 4, f"at {step.state}"
        step.next_canonical = f"at {step.next_state}"
    write(files / "ours", tree)
    (once,) = again(files / "ours", 1)
    assert carried(once) == carried(tree)
    (twice,) = again(files / "ours-1", 2)
    assert msgspec.json.encode(twice) == msgspec.json.encode(once)
    for method in METHODS:
        _, assign, switches = make({"method": method})
        assert assign(once, switches).steps == assign(tree, switches).steps


def test_a_trajectory_that_ended_before_an_answer_comes_back(files: Path) -> None:
    silent = {"action": None, "validity": Validity.VALID, "response": "", "next_observation": ""}
    overlong = act(1, 0, outcome=Outcome.FAILURE, stop=StopReason.OVERLONG, **silent)
    broken = act(2, 0, outcome=Outcome.ERRORED, error="engine", **silent)
    tree = tree_with(act(0, None, next_observation="o"), overlong, broken)
    write(files / "ours", tree)
    (once,) = again(files / "ours", 1)
    assert carried(once) == carried(tree)
    assert [one.stop is StopReason.OVERLONG for one in once.steps] == [False, True, False]
    assert [one.mask for one in once.steps] == [None, TOO_LONG, None]


@pytest.mark.parametrize("theirs", ["math", {"id": "x"}, 1.5, True, ["a"]])
def test_what_others_call_a_task_is_ignored(files: Path, theirs: object) -> None:
    row = {"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "2"}], "reward": 1}
    for name, more in (("with", {"task": theirs}), ("without", {})):
        Path(f"{name}.jsonl").write_text(json.dumps(row | more), encoding="utf-8")
        assert agentcli("import", f"{name}.jsonl", "--from", "messages", "-o", name).code == 0
    ids = [next(iter(read_trees(Path(name)))).task.id for name in ("with", "without")]
    assert ids[0] == ids[1]


def test_two_trees_of_one_task_come_back_as_two(files: Path) -> None:
    first = tree_with(act(0, None, outcome=Outcome.SUCCESS))
    second = tree_with(act(0, None, action="wait"), act(1, 0, outcome=Outcome.FAILURE))
    other = msgspec.structs.replace(first, task=msgspec.structs.replace(first.task, id="t #2"))
    for trees in ([first, other, second], [first, second, other]):
        write(files / "ours", *trees)
        assert [carried(tree) for tree in again(files / "ours", 1)] == [carried(tree) for tree in trees]
        assert [carried(tree) for tree in again(files / "ours-1", 2)] == [carried(tree) for tree in trees]
