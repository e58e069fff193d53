"""serve: a vLLM server for a model, used by the policy `openai`.

The name under which it serves contains a hash of the model's files. So the manifest of
a rollout records which weights answered, and a rollout cannot be resumed with other
weights under the same name. The server and its engine end with this process, in any
case.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path

from agentcli.errors import MissingError, UsageError
from agentcli.policies.load import adapter_base, existing, rank_of
from agentcli.policies.registry import require_installed
from agentcli.policies.vllm_engine import (
    check_vllm,
    engine_options,
    environment,
)
from agentcli.records.http import Asking, BlockingHttpClient, NoAnswerError
from agentcli.records.kernel import die_with_parent
from agentcli.records.processes import how_ended
from agentcli.records.runs import hash_inputs
from agentcli.records.settings import Settings
from agentcli.stages.plan import check_model, model_sources

SERVER = "vllm.entrypoints.openai.api_server"
POLL_SECONDS = 0.5
END_SECONDS = 20.0
"""How long a server may take to stop before it is killed."""


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """A server that is ready to start."""

    settings: Settings
    model: str
    adapter: str | None
    name: str
    """Its name for clients."""
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address for the policy `openai`."""
        return f"http://{self.host}:{self.port}/v1"

    @property
    def use(self) -> str:
        """The options with which a command uses it."""
        return (
            f"--policy openai --base-url {self.url} --model {self.name} "
            "--set policy.endpoint.logprobs=processed"
        )


def plan(settings: Settings, model: str, *, host: str, port: int) -> ServerPlan:
    """Plans a server for a model directory, an adapter directory, or a hub id.

    Raises MissingError without vLLM or the model, UsageError for a port in use.
    """
    require_installed("vllm", "vllm", "serve")
    check_vllm(settings)
    check_model(model)
    _check_free(host, port)
    base = adapter_base(existing(model))
    adapter = model if base else settings.policy.adapter
    return ServerPlan(
        settings=settings,
        model=base or model,
        adapter=adapter,
        name=served_name(model, settings.policy.adapter),
        host=host,
        port=port,
    )


def served_name(model: str, adapter: str | None = None) -> str:
    """The name of the run or model, with a hash of all files behind its answers.

    A hub id is used as it is.
    """
    # An adapter's answers depend on its base as well, which may change under its path.
    folders = [folder for folder in (adapter, model, adapter_base(model)) if folder]
    sources = [source for folder in folders for source in model_sources(folder)]
    if not sources:
        return model
    digest = hashlib.sha256()
    for path, sha256 in hash_inputs(sources).items():
        digest.update(f"{Path(path).name} {sha256}\n".encode())
    folder = Path(folders[0]).resolve()
    named = folder.parent if folder.name == "checkpoint" else folder
    return f"{named.name}-{digest.hexdigest()[:16]}"


def perform(server: ServerPlan, ready: Callable[[], None]) -> None:
    """Serves until it is interrupted; `ready` is called when the server answers.

    Raises MissingError for a server that does not start, or that ended by itself.
    """
    with environment(server.settings.threads):
        process = subprocess.Popen(
            command(server),
            # Ctrl-C is for this command alone, which ends the server in order.
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),
        )
    try:
        _wait_until_ready(process, server)
        ready()
        code = process.wait()
        raise MissingError(
            f"the server of {server.name} ended by itself ({how_ended(code)}); type the "
            "command again"
        )
    except KeyboardInterrupt:
        # Ctrl-C is the normal way to stop it.
        return
    finally:
        _end(process)


def command(server: ServerPlan) -> list[str]:
    """The command line of the server."""
    rank = rank_of(server.adapter) if server.adapter else 0
    options = engine_options(server.model, server.settings, rank)
    # Unlike the policy, its clients send text.
    del options["skip_tokenizer_init"]
    served = server.name
    words = [sys.executable, "-m", SERVER, "--uvicorn-log-level", "error"]
    words += ["--host", server.host, "--port", str(server.port)]
    if server.adapter:
        words += ["--lora-modules", f"{server.name}={server.adapter}"]
        served = f"base-of-{server.name}"
    words += ["--served-model-name", served]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, dict):
            words += [f"--{flag}", json.dumps(value)]
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        else:
            words += [f"--{flag}", str(value)]
    return words


def _wait_until_ready(process: "subprocess.Popen[bytes]", server: ServerPlan) -> None:
    url = f"http://{server.host}:{server.port}/health"
    # Do not use the environment's proxy for addresses of this machine.
    asking = Asking(seconds=POLL_SECONDS, setting="a poll", trust_env=False)
    with closing(BlockingHttpClient(asking)) as client:
        while process.poll() is None:
            with suppress(NoAnswerError):
                if client.ask("GET", url, most_bytes=0).status == HTTPStatus.OK:
                    return
            time.sleep(POLL_SECONDS)
    raise MissingError(
        f"the server of {server.name} did not start ({how_ended(process.returncode)}); mend "
        "what it reports above"
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stops the server and all its child processes."""
    # First politely, so that vLLM can end its engine and free the GPU.
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        # The engine is a process of its own, in the group of the server.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _check_free(host: str, port: int) -> None:
    """Raises UsageError if the address cannot be used."""
    try:
        # Found out here and not after the minutes in which a server loads its model.
        socket.create_server((host, port)).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"{host}:{port}: cannot be listened on ({error}); choose another with "
            "--port N"
        ) from error
