"""What is counted of sampled trees, when a person is told of them, and what: by hand, and by real commands in the toy world."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.exploration.settings import rollout_settings
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import read_json, read_records
from agentcli.records.settings import PolicySettings, PromptSettings, RolloutSettings, Settings
from agentcli.records.types import Episode, Ledger, Manifest, Move, Outcome, Step, StopReason, Task, Tree, Validity
from agentcli.stages.backend import LocalBackend
from agentcli.stages.rollout import perform, plan
from agentcli.stages.session import Invocation, Session
from agentcli.stages.tally import Tally, counted, share_of_success
from bad_input_runs import MODEL, START, folder
from chat_server import ChatServer, completion
from command_line import agentcli, succeeded
from grown_runs import toy
from refusal import refused

__all__ = ["folder"]

SETTINGS = Settings(policy=PolicySettings(max_tokens=24), prompt=PromptSettings(style="react"))
SPARK = Settings(rollout=rollout_settings("spark", branch="fixed:1"))
ANY_ERRORS = Settings(rollout=RolloutSettings(most_errored=1.0))
UNREAD, CUT = {"validity": Validity.MALFORMED}, {"stop": StopReason.LENGTH}
HOSTILE = "\x1b[2J[bold]:skull:\u202e\nerror: all is lost " + "x" * 1000


def tree(*steps: dict[str, Any], task: str = "a") -> Tree:
    """Roots, one for each of `steps`, every one a leaf unless it says otherwise."""
    common = {"prompt": "p", "response": "r", "observation": "o", "state": "s", "next_state": "s"}
    found = [
        Step(
            id=number,
            **{**common, "parent": None, "next_observation": "o", "action": "go", "outcome": Outcome.TRUNCATED, **step},
        )
        for number, step in enumerate(steps)
    ]
    named = Task(id=task, world="w", split="s", kind="k")
    return Tree(task=named, instruction="i", method="chain", seed=0, steps=found, ledger=Ledger(leaves=len(steps)))


def told(*trees: Tree) -> list[str]:
    tally = Tally()
    for one in trees:
        tally.add(one)
    lines = list(tally.warnings(SETTINGS))
    tally.judge_errors(ANY_ERRORS, Path("x"), lines.append)
    return lines


def test_responses_are_counted_by_what_can_be_read_and_by_what_was_cut() -> None:
    move = {"copy": 1, "action": "go", "observation": "o", "state": "s", "next_state": "s", "next_observation": "o"}
    tally = Tally()
    tally.add(
        tree(
            {},
            {**UNREAD, **CUT},
            UNREAD,
            CUT,
            {"validity": Validity.INADMISSIBLE, "outcome": None},
            {"moves": [Move(**move), Move(**{**move, "copy": 2})], "outcome": Outcome.SUCCESS},
            {"error": "broke", "outcome": Outcome.ERRORED, "stop": StopReason.LENGTH, "validity": Validity.MALFORMED},
        )
    )
    tally.add(tree({"outcome": Outcome.FAILURE}, task="b"))
    assert tally.counts == {
        "trees": 2,
        "leaves": 7,
        "success": 1,
        "failure": 1,
        "truncated": 4,
        "errored": 1,
        "responses": 7,
        "malformed_responses": 2,
        "cut_responses": 2,
        "inadmissible_responses": 1,
        "overlong": 0,
    }
    assert tally.ledger.leaves == 8


def test_siblings_and_the_papers_trigger_stand_beside_each_other() -> None:
    """Three roots, two of them alike; under the first two forks alike, under the second one step alone. Ledgers as an actor
    charges them."""
    inner = {"outcome": None, "tag": "explore"}
    forks = ({"parent": 0}, {"parent": 0, "tag": "explore"}, {"parent": 1, "action": "look"})
    one = tree(
        inner, inner, {"action": "take"}, *forks, {"parent": 2, "error": "broke", "response": "", "action": None}
    )
    one.ledger = Ledger(siblings=5, distinct_siblings=3)
    tally = Tally()
    assert tally.statistics()["siblings"]["distinct"] is None
    tally.add(one)
    two = tree({}, {"action": "look"}, task="b")
    two.ledger = Ledger(siblings=2, distinct_siblings=2)
    tally.add(two)
    assert tally.statistics() == {
        "explore": 3 / 8,
        "siblings": {"steps": 7, "distinct": 5 / 7, "distinct_at_start": 4 / 5, "distinct_of_forks": 1 / 2},
        "forks_by_depth": [1.0],
        "fork_depth": 1,
    }


def test_half_of_the_responses_may_be_unreadable_without_a_word() -> None:
    assert told() == []
    assert told(tree({}, UNREAD)) == []
    assert told(tree({}, {"validity": Validity.INADMISSIBLE}, {"validity": Validity.INADMISSIBLE})) == []
    assert told(tree({}, CUT, CUT, CUT)) == [], "cut, and read"
    (line,) = told(tree({}, UNREAD), tree(UNREAD, task="b"))
    assert line.startswith("warning: 2 of 3 responses (67%) ")
    assert "no readable action: " in line


def test_the_cause_is_what_happened_to_most_of_them_and_the_first_such_response_is_shown() -> None:
    cut, whole = {**UNREAD, **CUT, "response": "<think> I was"}, {**UNREAD, "response": "hello"}
    (line,) = told(tree(whole, cut, cut, {}))
    assert line.startswith("warning: 3 of 4 responses (75%) ")
    assert line.endswith(": <think> I was")
    assert "2 of them cut at " in line
    assert "policy.max_tokens=24: " in line
    assert "--set policy.max_tokens=96" in line
    (line,) = told(tree(cut, whole, {}, CUT), tree(whole, cut, task="b"))
    assert line.startswith("warning: 4 of 6 responses (67%) ")
    assert line.endswith("; the first: hello")
    assert "prompt.style=react" in line
    assert "max_tokens" not in line


def errored(text: str) -> dict[str, Any]:
    return {"outcome": Outcome.ERRORED, "error": text}


def test_errors_are_counted_with_the_first_of_them() -> None:
    first, second = errored("no answer"), errored("died")
    (line,) = told(tree({}), tree(first, second, task="b"), tree({}, second, task="c"))
    assert "3 of 5 leaves" in line
    assert "no answer" in line
    assert "--resume" in line


def test_a_fault_of_the_world_is_not_to_be_resumed() -> None:
    fault = errored("task b: step 1 'go': the world failed: KeyError: 'lamp'")
    (line,) = told(tree({}, fault))
    assert "--resume" not in line
    assert "agentcli env check" in line
    (line,) = told(tree({}, fault, errored("died")))
    assert "--resume" in line, "half of them may pass"


@pytest.mark.parametrize("kept", [0, 20])
def test_more_errors_than_are_allowed_are_a_failure(kept: int) -> None:
    """One of five leaves is more than a tenth, and one of 25 is not."""
    tally = Tally()
    tally.elsewhere = kept
    tally.add(tree({}, {}, {}, {}, errored("no answer")))
    notes: list[str] = []

    def judge() -> None:
        tally.judge_errors(SETTINGS, Path("runs/x"), notes.append)

    if kept:
        judge()
        assert len(notes) == 1
    else:
        names = ("runs/x", "1 of 5", "no answer", "rollout.most_errored")
        refused(judge, code=1, names=names, remedy="--resume")
        assert not notes


@pytest.mark.parametrize(
    "step", [{**UNREAD, "response": HOSTILE}, {"outcome": Outcome.ERRORED, "error": HOSTILE}], ids=["response", "error"]
)
def test_hostile_text_is_one_short_printable_line(step: dict[str, Any]) -> None:
    (line,) = told(tree(step))
    assert line.isprintable()
    assert r"\x1b[2J[bold]:skull:\u202e error: all is lost xxx" in line
    assert len(line) < 600


def play(text: str, **changes: Any) -> Callable[[dict[str, Any], int], Any]:
    return lambda body, before: completion(text, **changes)


SAMPLING = {
    "rollout": ("rollout", "--leaves", "2"),
    "eval": ("eval", "--split", "test"),
    "pass-at-k": ("pass-at-k", "--split", "test", "-n", "2", "-k", "1"),
    "test-time-branch": ("test-time-branch", "--split", "test"),
    "demos": ("demos", "--count", "4"),
}


def sample(server: ChatServer, name: str, *more: str) -> Any:
    served = ("--policy", "openai", "--model", "m", "--base-url", server.url)
    return agentcli(*SAMPLING[name], "-c", "toy.yaml", *served, "-o", f"new/{name}", *more)


def warnings_of(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "warning: " in line]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", SAMPLING)
def test_whoever_samples_says_that_nothing_can_be_read(name: str) -> None:
    with ChatServer(play("I was about to", finish_reason="length")) as server:
        cut = sample(server, name)
    assert cut.code == 0, cut
    (line,) = warnings_of(cut.stderr)
    assert re.match(r"warning: (\d+) of \1 .*\(100%\) .*, \1 of .*\.max_tokens=16: ", line), line
    assert "no readable action" in line
    with ChatServer(play("[bold]:skull:")) as server:
        strange = sample(server, name, "--overwrite", "--json")
    (line,) = warnings_of(strange.stderr)
    assert "prompt.style=compact" in line
    assert line.endswith("; the first: [bold]:skull:")
    json.loads(strange.stdout)
    with ChatServer(play(write_tagged("think", "on", "go east"))) as server:
        assert warnings_of(sample(server, name, "--overwrite").stderr) == []
        assert warnings_of(sample(server, name, "--resume").stderr) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("method", ["chain", "dpepo"])
def test_policies_without_a_model_and_experts_with_faults_are_not_warned_of(method: str) -> None:
    copies = ("--set", "rollout.copies=2") if method == "dpepo" else ()
    plain = ("-c", "toy.yaml", "--set", f"rollout.method={method}", *copies, "-o")
    for policy in ("random", "search", "expert") if method == "chain" else ("search", "expert"):
        assert warnings_of(agentcli("rollout", *plain, f"new/{policy}", "--policy", policy).stderr) == []
    faulty = ("--set", "demos.noise=0.5", "--set", "demos.stray=0.4", "--set", "demos.keep=all")
    answer = succeeded("demos", *plain, "new/demos", *faulty)
    assert warnings_of(answer.stderr) == []
    counts = read_json(Path("new/demos/manifest.json"), Manifest).stages["demos"].counts
    assert (counts["malformed_responses"], counts["cut_responses"]) == (0, 0)
    assert counts["inadmissible_responses"] > 0 or method == "dpepo"


@pytest.mark.usefixtures("folder")
def test_counts_of_responses_are_those_of_the_trees_and_are_printed() -> None:
    answer = agentcli("rollout", *MODEL, "-o", "new/x", "--json")
    counts = json.loads(answer.stdout)["counts"]
    steps = [step for one in read_records(Path("new/x/trees.jsonl"), Tree) for step in one.steps]
    assert counts["responses"] == len(steps) > 0
    assert counts["malformed_responses"] == sum(step.validity is Validity.MALFORMED for step in steps)
    assert counts["cut_responses"] == sum(step.stop is StopReason.LENGTH for step in steps) > 0
    assert read_json(Path("new/x/manifest.json"), Manifest).stages["rollout"].counts == counts
    table = agentcli("rollout", *MODEL, "-o", "new/x", "--overwrite").stderr
    assert f"malformed_responses {counts['malformed_responses']}" in " ".join(table.split())


@pytest.mark.usefixtures("folder")
def test_a_loop_says_in_which_iteration_nothing_can_be_read_once() -> None:
    loop = (
        "run",
        "--preset",
        "./toy.yaml",
        "--model",
        START,
        "-o",
        "new",
        "--iterations",
        "2",
        "--set",
        "policy.max_tokens=4",
    )
    answer = succeeded(*loop)
    lines = warnings_of(answer.stderr)
    assert [line.partition(": ")[0] for line in lines] == ["iteration_000", "iteration_001"]
    assert all("policy.max_tokens=16" in line for line in lines)
    again = agentcli(*loop, "--resume")
    assert (again.code, warnings_of(again.stderr)) == (0, [])


def test_a_loop_is_told_that_training_leaves_errors_out(tmp_path: Path) -> None:
    settings = toy(options={"fault": "raise", "fault_tasks": ["train/2", "train/7"], "fault_action": "go east"})
    heard: list[str] = []

    async def work() -> None:
        rollout = plan(settings, tmp_path / "runs/x", model=None)
        async with EnginePool(settings.environment) as pool:
            with Session(rollout, Invocation([])) as session:
                await perform(rollout, session, LocalBackend(pool), heard.append)

    asyncio.run(work())
    (line,) = heard
    assert "training leaves them out" in line
    assert "train/2" in line
    assert line in (tmp_path / "runs/x/logs/rollout-001.log").read_text(encoding="utf-8")
    assert not (tmp_path / "runs/latest").exists()


BROKEN = {"fault": "raise", "fault_action": "go east", "length": 3, "tasks": 4}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["rollout", "eval"])
def test_errored_tasks_are_told_and_resume_is_what_mends_them(name: str) -> None:
    split = "train" if name == "rollout" else "test"
    fault = f"environment.options={json.dumps({**BROKEN, 'fault_tasks': [f'{split}/1', f'{split}/2']})}"
    words = (*SAMPLING[name], "-c", "toy.yaml", "--policy", "search", "-o", "new")
    answer = agentcli(*words, "--set", fault)
    assert answer.code == 1
    assert f"{split}/1" in answer.stderr.splitlines()[-1]
    answer = succeeded(*words, "--set", fault, "--overwrite", "--set", "rollout.most_errored=1")
    (line,) = warnings_of(answer.stderr)
    assert f"{split}/1" in line
    for begun in Path("new/settings").iterdir():
        begun.unlink()
    assert warnings_of(agentcli(*words, "--resume").stderr) == []
    if name == "rollout":
        assert counted(Path("new/trees.jsonl"))[0].counts["errored"] == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("keep", "task"), [("all", "train/2"), ("success", "train/0"), ("success", "train/2")])
def test_demonstrations_that_errored_keep_their_place_until_a_resume_plays_them_again(keep: str, task: str) -> None:
    """Three steps are enough for train/0 and not for train/2, which is no demonstration where successes are kept."""
    words = ("demos", "-c", "toy.yaml", "--max-steps", "3", "--set", f"demos.keep={keep}")
    assert agentcli(*words, "-o", "whole").code == 0
    whole = Path("whole/trees.jsonl").read_bytes().splitlines()
    fault = f"environment.options={json.dumps({**BROKEN, 'fault_tasks': [task]})}"
    broken = agentcli(*words, "-o", "new", "--set", fault)
    assert broken.code == 1
    assert task in broken.stderr.splitlines()[-1]
    lines = Path("new/trees.jsonl").read_bytes().splitlines()
    errored = [line for line in lines if b'"outcome":"errored"' in line]
    assert 0 < len(errored) < len(lines) == len(whole)
    if (keep, task) != ("success", "train/2"):
        assert all(now == then for now, then in zip(lines, whole, strict=True) if now not in errored)
    Path("new/settings/demos.json").unlink()
    if keep == "all":
        # As a kill in the midst of a resume leaves it: one is played again, and one is torn.
        played = [now for now, then in zip(whole, lines, strict=True) if then in errored]
        with Path("new/trees.jsonl").open("ab") as file:
            file.write(played[0] + b"\n" + played[-1][:99])
    assert agentcli(*words, "-o", "new", "--resume").code == 0
    assert Path("new/trees.jsonl").read_bytes().splitlines() == whole
    again = agentcli(*words, "-o", "new", "--resume")
    assert "nothing is owed" in again.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", SAMPLING)
def test_an_engine_that_died_once_leaves_the_same_bytes(name: str) -> None:
    words = (*SAMPLING[name], "-c", "toy.yaml", "--policy", "search", "-o")
    split = "train" if name in ("rollout", "demos") else "test"
    options = {"length": 3, "tasks": 4, "fault_tasks": [f"{split}/1"], "fault_action": "go east"}
    for out, fault in (("whole", {}), ("new", {"fault": "exit", "once": str(Path("once").resolve())})):
        setting = f"environment.options={json.dumps({**options, **fault})}"
        assert agentcli(*words, out, "--set", setting).code == 0
    assert Path("once").exists(), "no engine has died"
    (record,) = read_json(Path("new/manifest.json"), Manifest).stages.values()
    assert record.statistics["engine_retries"] == 1
    files = [path.relative_to("whole") for path in Path("whole").rglob("*.jsonl") if path.name != "seconds.jsonl"]
    assert files
    for file in files:
        assert Path("new", file).read_bytes() == Path("whole", file).read_bytes()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("name", "kept"), [("rollout", 3), ("eval", 3), ("pass-at-k", 1), ("demos", 5)])
def test_success_after_a_resume_is_that_of_all(name: str, kept: int) -> None:
    """On the terminal and in the log, also when the manifest alone is missing. Three steps are enough for two tasks of four."""
    words = (*SAMPLING[name], "-c", "toy.yaml", "--policy", "search", "--max-steps", "3", "-o", "new")
    words += ("--count", "7") if name == "demos" else ()
    succeeded(*words)
    path = next(iter([*Path("new").glob("trees.jsonl"), *Path("new").glob("evaluation/*.jsonl")]))
    lines = path.read_bytes().splitlines(keepends=True)
    if name in ("rollout", "demos"):
        shares = [share_of_success(one) for one in read_records(path, Tree)]
    else:
        shares = [float(row.outcome is Outcome.SUCCESS) for row in read_records(path, Episode)]
    mean = sum(shares) / len(shares)
    per_task = 2 if name == "pass-at-k" else 1
    rest = shares[kept * per_task :]
    assert f"{mean:.2f}" != f"{sum(rest) / len(rest):.2f}", "else this test shows nothing"
    for left in (kept * per_task, len(lines)):
        path.write_bytes(b"".join(lines[:left]))
        Path("new/manifest.json").unlink()
        again = succeeded(*words, "--resume")
        assert f", success {mean:.2f}, " in again.stderr, (again.stderr, shares)
        assert path.read_bytes() == b"".join(lines)
        newest = max(Path("new/logs").iterdir()) if left < len(lines) else None
        assert newest is None or f", success {mean:.2f}, " in newest.read_text(encoding="utf-8")


@pytest.mark.parametrize(("early", "late", "warned"), [(9, 0, False), (9, 1, True), (18, 2, True), (17, 3, False)])
def test_forks_that_are_nearly_all_after_the_first_step_are_warned_of(early: int, late: int, warned: bool) -> None:
    """Ten forks say something, and nine of ten are too many. Roots are no forks."""
    inner: dict[str, Any] = {"outcome": None}
    tally = Tally()
    tally.add(tree(inner, {"parent": 0, **inner}, *[{"parent": 0}] * early, *[{"parent": 1}] * (late + 1), {}, {}))
    assert tally.statistics()["forks_by_depth"][0] == early / (early + late)
    assert tally.statistics()["fork_depth"] == 1
    assert ["after the first step" in line for line in tally.misplaced_forks(SPARK)] == [True] * warned


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("policy", "branch", "warned"),
    [("expert", "explore", True), ("expert", "fixed:0.5", False), ("search", "explore", False)],
)
def test_spark_without_a_word_of_explore_is_warned_of(policy: str, branch: str, warned: bool) -> None:
    chosen = ("--policy", policy, "--set", f"rollout.branch={branch}", "-o", "new/x")
    answer = succeeded(
        "rollout", "-c", "toy.yaml", "--set", "rollout.method=spark", "--set", "rollout.leaves=4", *chosen
    )
    assert ["demos --annotate" in line for line in warnings_of(answer.stderr)] == [True] * warned
