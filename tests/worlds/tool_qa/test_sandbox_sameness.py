"""What a program prints hangs on the program alone: neither on how busy the machine is nor on the programs before it."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentcli.errors import EngineError
from agentcli.worlds.tool_qa import sandbox_server as server_code
from agentcli.worlds.tool_qa.tools.python import Sandbox
from processes import SECONDS, below

ENDLESS = (
    "while True: pass",
    "import os\nos.close(1)\nos.close(2)\nwhile True: pass",
    "import os\nos.write(1, b'begun')\nwhile True: pass",
)
WAITING = "import _thread\nlock = _thread.allocate_lock()\nlock.acquire()\nlock.acquire()"
COUNTING = "import ctypes, os\nos.getpid(), os.getppid(), ctypes.CDLL(None).gettid()"
SCAN = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.malloc.restype = ctypes.c_void_p
PAGE, MASK, INVALID = 4096, MASK_NUMBER, 22
def there(page):
    # The kernel reads the mask before it refuses what is to be done with it.
    libc.syscall(MASK, 99, ctypes.c_void_p(page), None, 8)
    return ctypes.get_errno() == INVALID
found = pages = 0
for start in (libc.malloc(64), id(object()), id([0] * 50), libc.malloc(4000)):
    start -= start % PAGE
    for step in (-PAGE, PAGE):
        page = start
        while there(page) and abs(page - start) < 2 ** 23:
            text = ctypes.string_at(page, PAGE)
            pages += 1
            at = text.find(b"trea")
            while at >= 0:
                found += text.startswith(b"sure", at + 4)
                at = text.find(b"trea", at + 1)
            page += step
print(pages > 100, found > 0)
"""
"""Looks for a word in all memory that it can reach; the word itself is not in here."""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox()
    assert made.run("1 + 1") == "2"
    yield made
    made.close()


def test_endless_computing_always_ends_with_the_same_words() -> None:
    """Several servers at once, more than there are cores, each with another way to compute for ever."""
    servers = [Sandbox() for _ in ENDLESS]
    with ThreadPoolExecutor() as threads:
        outputs = list(threads.map(Sandbox.run, servers, ENDLESS))
    for made in servers:
        made.close()
    assert len(set(outputs)) == 1, outputs
    assert outputs[0].startswith("error: it ran longer")


@pytest.mark.slow
def test_waiting_ends_with_the_words_of_computing(sandbox: Sandbox) -> None:
    assert sandbox.run(WAITING) == sandbox.run(ENDLESS[0])


def test_a_program_that_the_machine_kills_is_no_observation(sandbox: Sandbox) -> None:
    assert sandbox._process is not None
    server = sandbox._process.pid
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(sandbox.run, WAITING)
        deadline = time.monotonic() + SECONDS
        # The program is the child of its keeper.
        while len(below(server)) < 2 and time.monotonic() < deadline:
            pass
        os.kill(below(server)[-1], signal.SIGKILL)
        with pytest.raises(EngineError):
            answer.result()
    assert sandbox.run("1 + 1") == "2", "another server answers"


def test_no_program_finds_another_one_in_memory(sandbox: Sandbox) -> None:
    column, _ = server_code.MACHINES[os.uname().machine]
    scan = SCAN.replace("MASK_NUMBER", str(server_code.ALLOWED["rt_sigprocmask"][column]))
    for number in range(20):
        assert sandbox.run(f"kept = 'treasure' * {number}\n" + "# treasure" * 150) == ""
        assert "treasure" in sandbox.run("print('trea' + 'sure' + ' treasure' * 90)")
    assert sandbox.run(scan) == "True False"
    assert sandbox.run("kept = b'treasure'" + scan) == "True True", "the search finds what is there"


def test_no_program_can_count_those_before_it(sandbox: Sandbox) -> None:
    assert sandbox.run(COUNTING) == sandbox.run(COUNTING) == "(-1, -1, -1)"
