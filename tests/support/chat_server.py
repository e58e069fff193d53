"""A chat completions server on loopback that does what a script says, misbehaviour included.

    with ChatServer([Answer(status=429, headers={"Retry-After": "7"}), completion("hello")]) as server:
        ... server.url, server.bodies, server.headers

A script is a list of answers (the last one is given again and again) or a function of (request body, how many came before).
It serves other routes where they are named.
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. `body` is sent as JSON unless it is bytes."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Break the connection after this many bytes of the body."""
    drip: bool = False
    """Send the body byte by byte, 10 ms apart, and never the last one."""

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(text: str = "hello", **changes: Any) -> Answer:
    """A whole answer as vLLM gives it: three tokens, their log-probabilities, usage. `changes` go into the choice."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "token_ids": [5, 6, 7],
        "logprobs": {"content": [{"token": "t", "logprob": value} for value in (-0.1234567, -2.0, 0.0)]},
        **changes,
    }
    return Answer({"id": "x", "choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 3}})


Script = Iterable[Answer] | Callable[[dict[str, Any], int], Answer]


class ChatServer:
    """Serves within a `with` block, on a port of its own."""

    def __init__(
        self, script: Script, models: Answer | None = None, routes: Sequence[str] = ("/v1/chat/completions",)
    ) -> None:
        self._script = script if callable(script) else _in_turn(list(script))
        self._routes = routes
        self._models = models or Answer({"data": [{"id": "served"}]})
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        self.answering = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.root}/v1"

    def __enter__(self) -> "ChatServer":
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def next_answer(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        """Note a request and look up its answer."""
        with self._lock:
            self.bodies.append(body)
            self.headers.append(headers)
            return self._script(body, len(self.bodies) - 1)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        chat = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._send(chat._models if self.path == "/v1/models" else Answer(status=404))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                known = self.path in chat._routes
                self._send(chat.next_answer(body, dict(self.headers)) if known else Answer(status=404))

            def _send(self, answer: Answer) -> None:
                data = answer.data
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(data)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                chat.answering.set()
                try:
                    if answer.drip:
                        self._drip(data)
                    else:
                        self.wfile.write(data[: answer.cut])
                except OSError:
                    self.close_connection = True
                self.close_connection |= answer.cut is not None

            def _drip(self, data: bytes) -> None:
                for byte in data[:-1]:
                    self.wfile.write(bytes([byte]))
                    if chat.closing.wait(0.01):
                        break
                chat.closing.wait()

            def log_message(self, *arguments: object) -> None:
                """Tests are quiet."""

        return Handler


def _in_turn(answers: list[Answer]) -> Callable[[dict[str, Any], int], Answer]:
    return lambda body, before: answers[min(before, len(answers) - 1)]
