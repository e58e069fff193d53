"""Programs that were not written here play a served world to its end, by the recipes of docs/guides/serving.md."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer
from served_worlds import served
from tool_caller import write_tool_caller
from typed_pages import ROOT, blocks, commands

PAGE = {block.title or block.lines[-1]: block for block in blocks(ROOT / "docs" / "guides" / "serving.md")}
SERVED = "http://127.0.0.1:8100"
MODEL = "http://127.0.0.1:8000/v1"
LIMIT = 3


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of the world that the page serves, on a free port and with a low limit."""
    (words,) = commands(PAGE["agentcli env serve ezpoints --port 8100 --max-steps 12"])
    with served(*words[3:4], "--max-steps", str(LIMIT)) as url:
        yield url


def write(title: str, folder: Path, **addresses: str) -> None:
    """A file of the page, with the addresses of this test."""
    text = "\n".join(PAGE[title].lines)
    for former, new in {"http://127.0.0.1:8100": addresses["world"], MODEL: addresses.get("model", MODEL)}.items():
        text = text.replace(former, new)
    (folder / title).write_text(text, encoding="utf-8")


def test_openenvs_client_plays_to_the_end(url: str, tmp_path: Path) -> None:
    write("play.py", tmp_path, world=url)
    (words,) = commands(PAGE["python play.py"])
    typed = [sys.executable, *words[1:]]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Write a formula")
    # The last action that the world lists is the sign that ends a formula.
    assert lines[-1] == "failure, -1.0"


@pytest.mark.slow
def test_trl_plays_to_the_end_and_learns_from_the_rewards(url: str, empty_folder: Path) -> None:
    """A model of 30,000 weights that calls the tool with one of two actions; one of them ends the episode early."""
    calls = [json.dumps({"name": "act", "arguments": {"action": action}}) for action in ("10", "=")]
    write_tool_caller(empty_folder / "caller", calls)
    (words,) = commands(PAGE[f"python trl_openenv.py {SERVED} Qwen/Qwen3-0.6B --updates 200"])
    given = {SERVED: url, "Qwen/Qwen3-0.6B": "caller", "200": "3"}
    typed = [given.get(word, word) for word in words[2:]]
    spec = importlib.util.spec_from_file_location("trl_openenv", ROOT / "examples" / words[1])
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    log = recipe.train([*typed, "--tasks", "2", "--turns", str(LIMIT)]).state.log_history[:-1]
    assert [line["played_to_the_end"] for line in log] == [1.0] * 3
    assert max(line["reward_std"] for line in log) > 0
    assert max(line["grad_norm"] for line in log) > 0


def streamed(text: str) -> Answer:
    """A completion as a stream, which verifiers asks for."""

    def chunk(**fields: object) -> str:
        body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "served", **fields}
        return f"data: {json.dumps(body)}\n\n"

    said = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    chunks = [chunk(choices=[said]), chunk(choices=[ended]), chunk(choices=[], usage=usage), "data: [DONE]\n\n"]
    return Answer("".join(chunks).encode(), headers={"Content-Type": "text/event-stream"})


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("vf-eval") is None,
    reason="verifiers is not on PATH: make it an environment of its own (pip install 'verifiers[openenv]' uv)",
)
def test_verifiers_plays_to_the_end(url: str, tmp_path: Path) -> None:
    """`10` is read as a number and is an action all the same; the limit ends the episodes."""
    with ChatServer(lambda body, before: streamed("10")) as model:
        write("served.toml", tmp_path, world=url, model=model.url)
        words = list(commands(PAGE["vf-eval @ served.toml"]))[-1]
        environment = {**os.environ, "OPENAI_API_KEY": "any"}
        # Its programs are of another environment than this one.
        environment.pop("PYTHONPATH", None)
        subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=True)
    (file,) = (tmp_path / "outputs").rglob("traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(episodes) == 3
    for episode in episodes:
        assert episode["ok"], episode["errors"]
        (trace,) = episode["traces"]
        assert (trace["stop_condition"], len(trace["calls"])) == ("user_closed", LIMIT)
        # An incomplete formula costs something at every step of it.
        assert trace["rewards"]["openenv_reward"]["score"] < 0
