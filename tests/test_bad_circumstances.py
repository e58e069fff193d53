"""What fails although the input is sound: a full disk, another writer, an endpoint that is down or gives no log-probabilities.

The full disk is a limit on the size of a file, in a process of its own: there the kernel says "File too large" where a full disk
says "No space left on device". Too little memory is a limit on its addresses.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import RunLock
from agentcli.records.types import Manifest, Tree
from bad_input_runs import (
    CREDIT,
    DEMOS,
    EVAL,
    MODEL,
    RESUMED,
    ROLLOUT,
    SFT_ON,
    START,
    TRAIN,
    agentcli,
    contents,
    folder,
    quietly,
    remove,
    untouched,
)
from chat_server import Answer as Reply
from chat_server import ChatServer, completion
from command_line import Answer
from processes import as_here
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

LIMITED = """
import resource, sys
from agentcli.cli.app import main
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]), int(sys.argv[2])))
sys.argv[:3] = ["agentcli"]
main()
"""
GONE = "http://127.0.0.1:9/v1"
EAST, KEY = write_tagged("think", "on", "go east"), write_tagged("explore", "a key", "take key")


def limited(limit: int, *words: str, kind: str = "RLIMIT_FSIZE") -> Answer:
    """What a process answers that may write no file longer than `limit` bytes, or that has another limit."""
    command = [sys.executable, "-c", LIMITED, kind, str(limit), *words, "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=as_here())
    return Answer(done.returncode, done.stdout, done.stderr)


def differences(before: dict[str, object]) -> set[str]:
    """What was written or deleted since, but for logs and the settings that --resume compares."""
    after = contents()
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    return {path for path in changed if not {"logs", "settings"} & set(Path(path).parts)}


def test_a_full_disk_stops_a_rollout_that_then_goes_on_to_the_same_bytes() -> None:
    words = ("rollout", "-c", "toy.yaml", "--policy", "search", "-o")
    assert agentcli(*words, "whole").code == 0
    whole, before = Path("whole/trees.jsonl").read_bytes(), contents()
    limit = len(whole) // 2
    refused(limited(limit, *words, "new"), 1, "new/trees.jsonl", "--resume")
    assert differences(before) == {"new", "new/trees.jsonl", "new/seconds.jsonl"}
    kept = list(read_records(Path("new/trees.jsonl"), Tree))
    assert 0 < len(kept) < 4
    assert agentcli(*words, "new", "--resume").code == 0
    assert Path("new/trees.jsonl").read_bytes() == whole


@pytest.mark.parametrize("words", [CREDIT, ("assign-credit", "runs/x", "--method", "rloo")], ids=["again", "new"])
def test_a_full_disk_leaves_credit_as_it_was(words: tuple[str, ...]) -> None:
    before = contents()
    refused(limited(3_000, *words), 1, "runs/x/credit/")
    assert contents() == before


@pytest.mark.slow
def test_a_full_disk_leaves_no_torn_checkpoint_and_train_goes_on_to_the_same_bytes() -> None:
    results = ("checkpoint/model.safetensors", "optimizer.safetensors")
    whole = [Path("runs/x", name).read_bytes() for name in results]
    refused(limited(20_000, *TRAIN), 1, "new/checkpoint", "--resume")
    assert not Path("new/checkpoint").exists()
    assert not Path("new/manifest.json").exists()
    assert agentcli(*TRAIN, "--resume").code == 0
    assert [Path("new", name).read_bytes() for name in results] == whole
    assert not list(Path("new").glob(".*"))


def test_a_full_disk_leaves_a_preset_uncopied() -> None:
    before = contents()
    refused(limited(100, "preset", "copy", "quickstart", "some.yaml"), 1, "some.yaml")
    assert contents() == before


def test_too_little_memory_is_one_line() -> None:
    answer = limited(150 << 20, *ROLLOUT, kind="RLIMIT_AS")
    refused(answer, 1, ("memory ran out", "150 MiB"), ("ulimit -v unlimited", "-o new"))


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [60, 100, 200, 400, 500, 600, 700, 800])
def test_however_little_memory_there_is_a_command_ends_in_one_line(mebibytes: int) -> None:
    """Where a library gives up by itself, the line is its own."""
    answer = limited(mebibytes << 20, *ROLLOUT, kind="RLIMIT_AS")
    assert answer.code == 1
    assert answer.stderr.count("\n") == 1, answer.stderr[:2000]
    assert "emory" in answer.stderr


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("runs/x", RESUMED),
        ("runs/x", CREDIT),
        ("runs/x", ("assign-credit", "runs/x", "--method", "rloo")),
        ("runs/x", ("train", "runs/x", "--overwrite")),
        ("runs/x", EVAL),
        ("runs/x", ("pass-at-k", "runs/x", "--split", "test", "-n", "2", "-k", "1")),
        ("runs/x", ("test-time-branch", "runs/x", "--split", "test")),
        ("runs/x", (*SFT_ON[:-1], "runs/x", "--overwrite")),
        ("runs/demos", DEMOS),
        ("runs/loop", ("run", "--preset", "./toy.yaml", "--model", START, "-o", "runs/loop", "--resume")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_second_writer_is_refused(run: str, words: tuple[str, ...]) -> None:
    lock = RunLock(Path(run), "agentcli other", "2026-01-01T00:00:00+00:00")
    try:
        refused(untouched(words), 2, (str(run), "agentcli other", str(os.getpid())), "wait")
    finally:
        lock.release()


def test_a_loop_waits_for_no_other_writer_of_an_iteration() -> None:
    remove("runs/loop/iteration_000/checkpoint")()
    results = [Path("runs/loop/iteration_000", name).read_bytes() for name in ("trees.jsonl", "manifest.json")]
    lock = RunLock(Path("runs/loop/iteration_000"), "agentcli other", "now")
    words = ("run", "--preset", "./toy.yaml", "--model", START, "-o", "runs/loop", "--resume")
    refused(quietly(*words), 2, ("runs/loop/iteration_000", "agentcli other"))
    assert results == [Path("runs/loop/iteration_000", name).read_bytes() for name in ("trees.jsonl", "manifest.json")]
    lock.release()
    assert quietly(*words).code == 0
    assert Path("runs/loop/checkpoint/model.safetensors").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("rollout", "-c", "toy.yaml", "-o", "new"),
        ("demos", "-c", "toy.yaml", "-o", "new"),
        ("demos", "--annotate", "runs/demos", "-c", "toy.yaml", "-o", "new"),
        ("eval", "runs/x", "--split", "test", "--label", "new"),
        ("pass-at-k", "runs/x", "--split", "test", "-n", "2", "-k", "1"),
        ("test-time-branch", "runs/x", "--split", "test"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_endpoint_that_is_down(words: tuple[str, ...]) -> None:
    asked = ("--policy", "openai", "--model", "m", "--base-url", GONE)
    refused(untouched((*words, *asked)), 4, GONE, "--base-url")


@pytest.mark.parametrize("url", ["", "ftp://x/v1", "x", "http://x:y@z/v1", "http://x:99999/v1"])
def test_an_endpoint_that_is_none(url: str) -> None:
    asked = ("--policy", "openai", "--model", "m", *(("--base-url", url) if url else ()))
    for more in ((), ("--dry-run",)):
        words = ("rollout", "-c", "toy.yaml", "-o", "new", *asked, *more)
        refused(untouched(words), 2, "policy.endpoint.base_url")


def bare(body: dict[str, object], before: int) -> Reply:
    """Plays the corridor well, without token ids and log-probabilities."""
    prompt = str(body["messages"])
    return completion(KEY if "Here is a key" in prompt else EAST, token_ids=None, logprobs=None)


def test_an_endpoint_without_log_probabilities_can_be_sampled_but_not_trained() -> None:
    with ChatServer(bare) as server:
        asked = ("--policy", "openai", "--model", "m", "--base-url", server.url)
        assert agentcli("rollout", "-c", "toy.yaml", "-o", "runs/served", *asked).code == 0
        for method, instead in [("carl", "--criterion random"), ("arpo", "--method spark")]:
            words = (
                "rollout",
                "-c",
                "toy.yaml",
                "-o",
                "new",
                "--method",
                method,
                "--roots",
                "1",
                "--concurrency",
                "1",
                *asked,
            )
            refused(untouched(words), 2, "log-probabilities", instead)
    assert agentcli("assign-credit", "runs/served").code == 0
    why = ("runs/served/trees.jsonl:1: ", "no step has token_ids", "--policy transformers")
    for more in ((), ("--recompute-logprobs",)):
        refused(untouched(("train", "runs/served", "--model", START, *more)), 3, why)


def test_the_panel_file_is_an_input_like_any_other() -> None:
    """Resumed with the same name but other tasks: refused, also where the tasks that are there are still among them."""
    words = ("rollout", *MODEL, "--panel", "panel.json", "-o", "new")
    assert agentcli(*words).code == 0
    assert "panel.json" in read_json(Path("new/manifest.json"), Manifest).stages["rollout"].inputs
    train = ("env", "panel", "-c", "toy.yaml", "--split", "test", "--set", "environment.options.tasks=5")
    assert agentcli(*train, "-o", "panel.json", "--overwrite").code == 0
    refused(untouched((*words, "--resume")), 2, "panel.json")
