"""Makes tests/data/foreign: trajectories in the toy world, written by verifiers 0.4.0 and inspect-ai 0.3.285 themselves.

usage: python tests/support/foreign_samples.py MODEL OUT [--groups 50] [--size 4], where those packages and agentcli are.

MODEL is a checkpoint with the corridor's words (toy_policy.py: sft/checkpoint). It answers behind a server on loopback, as
vLLM's /inference/v1/generate does, and verifiers' own training client asks it: rendered tokens, graph, rewards and the line in
traces.jsonl are the library's. One trace of each group is sampled once more from its second turn, so that its graph branches.
Inspect plays with its mock model, whose answers are drawn here. The chats are written as a plain program would.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

from agentcli.records.settings import EnvironmentSettings
from toy_world import ToyEngine, ToyWorld

TURNS = 5
SYSTEM = "You are in a corridor. Answer with one action."


def corridors(groups: int) -> Iterator[tuple[str, str, ToyEngine, str]]:
    """Name, kind, an opened engine and the first message of each task."""
    world = ToyWorld(EnvironmentSettings(options={"tasks": groups, "length": 3}))
    for task in world.tasks("train"):
        engine = world.engine()
        start = engine.start(task)
        yield task.id, task.kind, engine, f"{start.instruction} {start.observation.text}"


class Served(BaseHTTPRequestHandler):
    """vLLM's generate endpoint, answered by one model."""

    model: Any
    ends: list[int]
    lock = threading.Lock()

    def log_message(self, *_: object) -> None:
        """Stays silent."""

    def do_GET(self) -> None:
        """Answers that nothing else is served."""
        self.send_error(404)

    def do_POST(self) -> None:
        """Samples one completion at the temperature that was asked for."""
        torch = import_module("torch")
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        wanted = body["sampling_params"]
        ids, logprobs = list(body["token_ids"]), []
        with self.lock, torch.no_grad():
            for _ in range(wanted.get("max_tokens") or 16):
                logits = self.model(torch.tensor([ids])).logits[0, -1] / wanted["temperature"]
                scores = torch.log_softmax(logits.double(), -1)
                token = int(torch.multinomial(scores.exp(), 1))
                ids.append(token)
                logprobs.append({"token": f"token_id:{token}", "logprob": float(scores[token])})
                if token in self.ends:
                    break
        ended = ids[-1] in self.ends
        choice = {
            "index": 0,
            "token_ids": ids[len(body["token_ids"]) :],
            "logprobs": {"content": logprobs},
            "finish_reason": "stop" if ended else "length",
        }
        data = json.dumps({"request_id": "toy", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


async def with_verifiers(model: str, out: Path, groups: int, size: int) -> None:
    """Writes OUT/traces.jsonl."""
    vf, graph, trace_store = (import_module(f"verifiers.v1{name}") for name in ("", ".graph", ".utils.trace_store"))
    types, configs, dialects = (
        import_module(f"verifiers.v1.{name}") for name in ("types", "configs.client", "dialects")
    )
    traces, tasks, agents = (import_module(f"verifiers.v1.{name}") for name in ("trace", "task", "configs.agent"))
    train = import_module("verifiers.v1.clients.train")
    renderer = import_module("renderers").DefaultRendererConfig()
    address = start_server(model)
    config = configs.TrainClientConfig(
        base_url=f"{address}/v1", api_key_var="HOME", renderer=renderer, renderer_model_name=model
    )
    client = train.TrainClient(config)
    sampling = types.SamplingConfig(temperature=1.0, max_tokens=16)
    lock = asyncio.Lock()

    async def turn(trace: Any, messages: list[Any]) -> Any:
        pending = graph.prepare_turn(trace, messages)
        response = await client.get_response(dialects.ChatDialect(), {"model": model}, sampling, turn=pending)
        node = pending.commit(response)
        finish = response.finish_reason
        call = traces.ModelCall(node=node, model="toy", sampling=sampling, finish_reason=finish, usage=response.usage)
        trace.calls.append(call)
        return response.message

    for (name, kind, engine, first), number in ((one, n) for one in corridors(groups) for n in range(size)):
        data = tasks.WireTaskData(idx=0, id=name, name=kind, prompt=first, system_prompt=SYSTEM)
        key = tasks.task_key(data.model_dump(mode="json"))
        task = traces.TraceTask(type="Corridor", data=data, key=key, hash=key)
        agent = traces.AgentInfo(config=agents.WireAgentConfig(model="toy"))
        trace = traces.Trace(task=task, agent=agent)
        engine.start(engine.task)
        messages = [types.SystemMessage(content=SYSTEM), types.UserMessage(content=first)]
        for step in range(TURNS):
            if step == 1 and number == size - 1:
                await turn(trace, list(messages))
            said = await turn(trace, messages)
            action = re.search(r"<action>(.*?)</action>", said.content or "")
            seen = engine.step(action[1].strip() if action else "nothing")
            messages = [*messages, said, types.UserMessage(content=seen.text)]
            if seen.end:
                break
        graph.prepare_turn(trace, messages).commit_prompt()
        trace.record_reward("reached", seen.reward)
        trace.stop("agent_completed" if seen.end else "max_turns")
        trace.ok = True
        episode = vf.Episode(env=vf.EnvInfo(id="corridor"), task=task, traces=[trace], ok=True)
        await trace_store.append_episode(out, episode, lock)
    await client.close()


def start_server(model: str) -> str:
    """The address of a server of the model."""
    transformers = import_module("transformers")
    Served.model = transformers.AutoModelForCausalLM.from_pretrained(model).eval()
    Served.ends = [transformers.AutoTokenizer.from_pretrained(model).eos_token_id]
    import_module("torch").manual_seed(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def drawn(engine: ToyEngine, rng: random.Random) -> str:
    """An answer that is mostly one of the possible actions."""
    return rng.choice([*engine._admissible(), "go east", "go east", "sing <script>alert(1)</script>"])


def with_inspect(out: Path, groups: int, size: int) -> None:
    """Writes OUT/log.eval and OUT/log.json."""
    inspect = import_module("inspect_ai")
    model, dataset, solver = (import_module(f"inspect_ai.{name}") for name in ("model", "dataset", "solver"))
    scorer = import_module("inspect_ai.scorer")
    games = {name: (engine, first) for name, _, engine, first in corridors(groups)}
    samples = [dataset.Sample(input=first, id=name, target="exit") for name, (_, first) in games.items()]

    @solver.solver  # type: ignore[untyped-decorator]
    def walk() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            engine = games[str(state.sample_id)][0]
            engine.start(engine.task)
            rng = random.Random(f"{state.sample_id} {state.epoch}")
            for _ in range(TURNS):
                answer = model.ModelOutput.from_content("mockllm/model", drawn(engine, rng))
                # Without usage the mock model would download a tokenizer to count.
                answer.usage = model.ModelUsage(input_tokens=0, output_tokens=0, total_tokens=0)
                player = model.get_model("mockllm/model", custom_outputs=[answer], memoize=False)
                state.output = await player.generate(state.messages)
                state.messages.append(state.output.message)
                seen = engine.step(state.output.completion)
                state.messages.append(model.ChatMessageUser(content=seen.text))
                if seen.end:
                    break
            state.metadata["reward"] = seen.reward
            return state

        return solve

    @scorer.scorer(metrics=[scorer.mean()])  # type: ignore[untyped-decorator]
    def reached() -> Any:
        async def score(state: Any, target: Any) -> Any:
            return scorer.Score(value="C" if state.metadata["reward"] else "I")

        return score

    setup = [solver.system_message(SYSTEM), walk()]
    task = inspect.Task(dataset=samples, solver=setup, scorer=reached(), epochs=size, name="corridor")
    for form in ("eval", "json"):
        logs = inspect.eval(
            task, model="mockllm/model", log_dir=str(out), log_format=form, display="none", max_samples=1
        )
        Path(logs[0].location.removeprefix("file://")).rename(out / f"log.{form}")


def as_chats(out: Path, groups: int, size: int) -> None:
    """Writes OUT/chats.jsonl."""
    rng = random.Random(0)
    with (out / "chats.jsonl").open("w", encoding="utf-8") as file:
        for name, _, engine, first in corridors(groups):
            for _ in range(size):
                engine.start(engine.task)
                messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": first}]
                for _ in range(TURNS):
                    action = drawn(engine, rng)
                    seen = engine.step(action)
                    messages += [{"role": "assistant", "content": action}, {"role": "user", "content": seen.text}]
                    if seen.end:
                        break
                row = {"messages": messages, "reward": seen.reward, "success": seen.reward == 1, "group": name}
                file.write(json.dumps(row) + "\n")


def main() -> None:
    """Makes all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--size", type=int, default=4)
    typed = parser.parse_args()
    typed.out.mkdir(parents=True)
    as_chats(typed.out, typed.groups, typed.size)
    asyncio.run(with_verifiers(typed.model, typed.out, typed.groups, typed.size))
    with_inspect(typed.out, typed.groups, typed.size)


if __name__ == "__main__":
    sys.exit(main())
