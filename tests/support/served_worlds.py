"""Servers of worlds: the real one in a process of its own, and one that answers by a script, misbehaviour included."""

import http
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from processes import as_here
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve


@contextmanager
def process_of(*words: str, **environment: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`agentcli env serve WORDS`: its address and its process, which is ended afterwards."""
    command = [sys.executable, "-m", "agentcli", "env", "serve", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=as_here() | environment, start_new_session=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.kill()


@contextmanager
def served(*words: str, **environment: str) -> Iterator[str]:
    """The address of a server on a free port."""
    with process_of(*words, "--port", "0", **environment) as (url, _):
        yield url


Script = Callable[[dict[str, Any], int], Any]
"""Gives the answer to a message and to how many came before it in its session: a dictionary, raw text, or None to hang up."""

SCHEMA = {"action": {"properties": {"move": {"type": "string"}}}, "observation": {"properties": {"text": {}}}}


def seen(text: str = "A room.", done: bool = False) -> dict[str, Any]:
    """The answer that shows a state."""
    return {"type": "observation", "data": {"observation": {"text": text}, "reward": 0.0, "done": done}}


@contextmanager
def scripted(answer: Script, secret: str | None = None, **pages: Any) -> Iterator[str]:
    """The address of an OpenEnv server whose sessions `answer`; `pages` replace what lies at its paths."""
    shown: dict[str, Any] = {"schema": SCHEMA, "metadata": {"name": "rooms"}, **pages}

    def page(connection: ServerConnection, request: Request) -> Response | None:
        if secret not in (None, request.headers.get("Authorization")):
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "")
        name = request.path.strip("/")
        if name == "ws":
            return None
        body = shown.get(name)
        status = http.HTTPStatus.NOT_FOUND if body is None else http.HTTPStatus.OK
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = Headers([("Connection", "close"), ("Content-Length", str(len(data)))])
        return Response(status.value, status.phrase, headers, data)

    def converse(connection: ServerConnection) -> None:
        for count, text in enumerate(connection):
            reply = answer(json.loads(text), count)
            if reply is None:
                return
            connection.send(reply if isinstance(reply, str) else json.dumps(reply))

    with serve(converse, "127.0.0.1", 0, process_request=page, compression=None) as server, _running(server):
        host, port = server.socket.getsockname()
        yield f"http://{host}:{port}"


@contextmanager
def _running(server: Server) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
