"""Routes served on loopback by uvicorn, in a thread."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute


@contextmanager
def served(routes: Sequence[BaseRoute]) -> Iterator[str]:
    """The address of these routes, within the block."""
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Connections wait in the socket until the server takes them.
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
