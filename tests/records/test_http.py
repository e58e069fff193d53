"""What a hostile server can do to those who ask it: every peer ends in one line, in time, and in little memory."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from agentcli.records.http import Asking, BlockingHttpClient, LongAnswerError
from hostile_peers import PEERS, dripping, gzip_bomb, hostile, saying
from processes import as_here
from refusal import refused

WORKER = Path(__file__).parents[1] / "support" / "hostile_peers.py"
BOMB_MB = 4096
MEMORY_MB = 512
"""Much less than a bomb."""

everyone = pytest.mark.parametrize("name", PEERS)


def error_code(name: str) -> int:
    return 1 if name == "endpoint" else 4


@everyone
def test_a_bomb_is_refused_in_little_memory(name: str) -> None:
    """Of one layer and of two; a few kilobytes of the latter would be 4 GB."""
    one = saying(gzip_bomb(1, BOMB_MB), "Content-Encoding: gzip")
    two = saying(gzip_bomb(2, BOMB_MB), "Content-Encoding: gzip, gzip")
    with hostile(one) as first, hostile(two) as second:
        command = [sys.executable, str(WORKER), name, str(MEMORY_MB), first.url, second.url]
        done = subprocess.run(command, env=as_here(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    for line, url in zip(done.stdout.splitlines(), (first.url, second.url), strict=True):
        assert url in line
        assert "Content-Encoding" in line


@everyone
@pytest.mark.parametrize("encoding", ["gzip", "x-unknown"])
def test_a_false_encoding_is_one_line_with_the_address(name: str, encoding: str) -> None:
    with hostile(saying(b"no such thing", f"Content-Encoding: {encoding}")) as peer:
        refused(lambda: PEERS[name](peer.url, 60.0), error_code(name), names=(peer.url, encoding))


@everyone
@pytest.mark.parametrize("place", ["headers", "body"])
def test_a_drip_ends_at_the_deadline(name: str, place: str) -> None:
    """No pause between two of its bytes is as long as the deadline."""
    line = b"HTTP/1.1 200 OK\r\n"
    slow = b"X-Slow: " + b"x" * 300 + b"\r\n" if place == "headers" else b""
    body = b"Content-Length: 300\r\n\r\n" + b" " * 300
    with hostile(dripping(line + slow + body)) as peer:
        refused(lambda: PEERS[name](peer.url, 0.2), error_code(name), names=(peer.url, "0.2 s"))


def endless(over: threading.Event) -> Iterator[bytes]:
    """No body that a test must wait for: 64 MB are enough to see who reads them."""
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    for _ in range(1024):
        yield b" " * 2**16


def test_who_looks_for_a_listener_reads_no_body() -> None:
    with hostile(endless) as peer:
        PEERS["retriever check"](peer.url, 60.0)
        peer.over.set()
    assert peer.sent < 2**25


def test_a_body_is_read_up_to_the_limit() -> None:
    asking = Asking(seconds=60.0, setting="x")
    with hostile(endless) as peer, closing(BlockingHttpClient(asking)) as client, pytest.raises(LongAnswerError):
        client.ask("GET", peer.url, 1000)
    assert peer.sent < 2**25
    with hostile(saying(b" " * 1000)) as peer, closing(BlockingHttpClient(asking)) as client:
        assert client.ask("GET", peer.url, 1000).body == b" " * 1000
