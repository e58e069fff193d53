"""A server on loopback that answers whatever it is asked with the same bytes, and those who ask it: every peer of this package.

    python hostile_peers.py PEER MEGABYTES URL...

asks as PEER does, with so much memory and no more, and prints the line with which each address is refused.
"""

import asyncio
import resource
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from agentcli.environments.openenv import OpenEnvWorld
from agentcli.errors import AgentCliError
from agentcli.policies.endpoint import Endpoint
from agentcli.records.settings import EndpointSettings, EnvironmentSettings
from agentcli.worlds.search_qa.options import HttpRetrieverOptions
from agentcli.worlds.search_qa.retriever_client import HttpRetriever


class HostilePeer:
    """`pieces` makes what is sent, piece by piece; `over` is set when the test is done."""

    def __init__(self, pieces: Callable[[threading.Event], Iterator[bytes]]) -> None:
        self.sent = 0
        self.over = threading.Event()
        self._pieces = pieces
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
            self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(65536)
                for piece in self._pieces(self.over):
                    connection.sendall(piece)
                    self.sent += len(piece)
            except OSError:
                return


@contextmanager
def hostile(pieces: Callable[[threading.Event], Iterator[bytes]]) -> Iterator[HostilePeer]:
    """The server, within the block."""
    peer = HostilePeer(pieces)
    try:
        yield peer
    finally:
        peer.close()


def saying(body: bytes, *headers: str) -> Callable[[threading.Event], Iterator[bytes]]:
    """An answer as a whole."""
    head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""])
    return lambda over: iter([head.encode() + body])


def dripping(data: bytes) -> Callable[[threading.Event], Iterator[bytes]]:
    """A byte every 10 ms, so that no pause is long."""

    def pieces(over: threading.Event) -> Iterator[bytes]:
        for number in range(len(data)):
            yield data[number : number + 1]
            if over.wait(0.01):
                return

    return pieces


def gzip_bomb(layers: int, megabytes: int) -> bytes:
    """So many MB of blanks behind so many layers of gzip. One piece is compressed, and repeated."""
    piece = _gzipped(b" " * 2**20, zlib.Z_FULL_FLUSH)
    head, blanks = piece[:10], piece[10:]
    bomb = head + blanks * megabytes
    for _ in range(1, layers):
        bomb = _gzipped(bomb, zlib.Z_FINISH)
    return bomb


def _gzipped(data: bytes, flush: int) -> bytes:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    return packer.compress(data) + packer.flush(flush)


def _check_retriever(url: str, seconds: float) -> None:
    options = HttpRetrieverOptions(base_url=url, request_seconds=seconds, retries=0)
    HttpRetriever(options).require_listener()


def _search(url: str, seconds: float) -> None:
    options = HttpRetrieverOptions(base_url=url, request_seconds=seconds, retries=0)
    HttpRetriever(options).search(["a"], 1)


def _ask_endpoint(url: str, seconds: float) -> None:
    async def ask() -> None:
        settings = EndpointSettings(base_url=f"{url}/v1", request_seconds=seconds, retries=0)
        endpoint = Endpoint(settings, None)
        try:
            await endpoint.ask("/models", len)
        finally:
            await endpoint.close()

    asyncio.run(ask())


def _open_world(url: str, seconds: float) -> None:
    with patch("agentcli.environments.openenv.HTTP_SECONDS", seconds):
        OpenEnvWorld(EnvironmentSettings(name=url, deadline_seconds=seconds))


PEERS: dict[str, Callable[[str, float], None]] = {
    "retriever check": _check_retriever,
    "retriever": _search,
    "endpoint": _ask_endpoint,
    "world": _open_world,
}
"""Each asks the server at an address once, and gives it so many seconds."""


def main() -> None:
    name, megabytes, *urls = sys.argv[1:]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(megabytes) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for url in urls:
        try:
            PEERS[name](url, 60.0)
        except AgentCliError as error:
            print(error)


if __name__ == "__main__":
    main()
