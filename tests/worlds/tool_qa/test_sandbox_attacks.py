"""Programs that attack the sandbox, behind all protections: they fail, and the next one runs.

Modules that no program can import are reached as an attacker would: `ctypes`, `posix` and `_thread` are loaded or built in.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentcli.worlds.tool_qa import sandbox_server as server
from agentcli.worlds.tool_qa.tools.python import Sandbox

LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
PATIENCE = 15.0
"""Seconds that a busy machine may add."""
REFUSED = ("PermissionError", "Operation not permitted")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox()
    assert made.run("1 + 1") == "2"
    yield made
    assert made.run("1 + 1") == "2", "an attack has harmed the server"
    made.close()


def harmless(sandbox: Sandbox, program: str) -> str:
    """The output of an attack, after which the same server still answers."""
    assert sandbox._process is not None
    pid = sandbox._process.pid
    output = sandbox.run(program)
    assert sandbox.run("6 * 7") == "42"
    assert sandbox._process.pid == pid
    return output


def refused(sandbox: Sandbox, program: str) -> None:
    output = harmless(sandbox, program)
    assert output.startswith("error: "), output
    assert any(word in output for word in REFUSED), output


def members(session: int) -> dict[int, int]:
    """The processes of a session, and the hundredths of a second that each has computed."""
    ticks = {}
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, IndexError):
            continue
        if folder.name.isdigit() and int(fields[3]) == session and fields[0] != "Z":
            ticks[int(folder.name)] = int(fields[11]) + int(fields[12])
    return ticks


def test_a_fork_bomb(sandbox: Sandbox) -> None:
    refused(sandbox, "import os\nwhile True: os.fork()")


def test_a_memory_bomb(sandbox: Sandbox) -> None:
    output = harmless(sandbox, "kept = []\nwhile True: kept.append(bytearray(10 ** 7))")
    assert "MemoryError" in output


def test_endless_output_is_cut(sandbox: Sandbox) -> None:
    output = harmless(sandbox, "while True: print('x' * 1000)")
    assert len(output) < server.OUTPUT_BYTES + 100
    assert "error: " in output.rsplit("\n", 1)[-1]


def test_sleeping(sandbox: Sandbox) -> None:
    refused(sandbox, "import time\ntime.sleep(60)")


@pytest.mark.parametrize("place", ["/tmp/written", "written", "/dev/shm/written", "/proc/self/comm", "/dev/tty"])
def test_writing_outside(sandbox: Sandbox, place: str) -> None:
    refused(sandbox, f"open({place!r}, 'w')")
    refused(sandbox, f"import os\nos.open({place!r}, os.O_CREAT | os.O_WRONLY)")
    assert not Path("/tmp/written").exists()


def test_reading_the_home_folder_and_other_files(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("treasure")
    secret.chmod(0o644)
    home = Path.home()
    for place in (secret, home, "/etc/passwd", "."):
        refused(sandbox, f"open({str(place)!r}).read()")
        refused(sandbox, f"import os\nos.listdir({str(place)!r})")
    refused(sandbox, f"import os\nos.chdir({str(home)!r})")


@pytest.mark.parametrize("question", ["stat", "lstat", "statvfs", "readlink", "getxattr"])
def test_asking_whether_a_file_is_there(sandbox: Sandbox, question: str) -> None:
    more = ", 'user.x'" if question == "getxattr" else ""
    for place in ("/etc/passwd", "/etc/no such file"):
        refused(sandbox, f"import os\nos.{question}({place!r}{more})")
        assert harmless(sandbox, f"import os\nos.path.exists({place!r}) or os.access({place!r}, 0)") == "False"


def test_reading_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREASURE", "island")
    program = LIBC + (
        "import os, sys\nprint(os.environ, sys.argv)\n"
        "block = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ')\n"
        "at = 0\nwhile block and block[at]:\n  print(block[at])\n  at += 1"
    )
    made = Sandbox()
    output = harmless(made, program) if made.run("1") else ""
    assert "island" not in output
    assert "environ({})" in output
    made.close()


def test_sockets(sandbox: Sandbox) -> None:
    assert "ModuleNotFoundError" in harmless(sandbox, "import socket")
    # Debian's Python has _socket built in.
    assert "Error: " in harmless(sandbox, "import _socket\n_socket.socket()")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        program = LIBC + "print([libc.socket(domain, kind, 0) for domain in (1, 2, 10, 16, 17) for kind in (1, 2, 3)])"
        assert set(harmless(sandbox, program).strip("[]").split(", ")) == {"-1"}
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize("target", ["os.getppid()", "1", "-1", "0", "os.getpid()"])
def test_signals_to_the_parent_and_the_group(sandbox: Sandbox, target: str) -> None:
    refused(sandbox, f"import os\nos.kill({target}, 9)")
    assert "error: " in harmless(sandbox, LIBC + f"import os\nassert libc.kill({target}, 9) == 0")


def test_killing_the_group(sandbox: Sandbox) -> None:
    refused(sandbox, "import os\nos.killpg(0, 9)")
    refused(sandbox, "import os\nos.setsid()")


def test_links(sandbox: Sandbox) -> None:
    refused(sandbox, "import os\nos.symlink('/etc/passwd', '/tmp/link')")
    refused(sandbox, "import os\nos.link('/etc/passwd', '/tmp/link')")
    refused(sandbox, "import os\nos.rename('/tmp', '/tmp2')")


@pytest.mark.parametrize(
    "call",
    [
        "fork()",
        "vfork()",
        "open(b'/etc/passwd', 0)",
        "ptrace(16, os.getppid(), 0, 0)",
        "process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
        "unshare(0x10000000)",
        "mount(b'none', b'/', b'tmpfs', 0, 0)",
        "chroot(b'/')",
        "prctl(22, 0, 0, 0, 0)",
        "memfd_create(b'x', 0)",
        "shmget(0, 4096, 0o1666)",
        "setuid(0)",
        "setrlimit(7, ctypes.byref((ctypes.c_long * 2)(9, 9)))",
        "syscall(425, 8, 0)",
        "syscall(321, 0, 0, 0)",
        "execve(b'/bin/true', 0, 0)",
        "pipe(ctypes.byref((ctypes.c_int * 2)()))",
        "dup(1)",
        "ptrace(0, 0, 0, 0)",
        "socketpair(1, 1, 0, ctypes.byref((ctypes.c_int * 2)()))",
        "syscall(248, b'user', b'name', b'value', 5, -3)",
        "syscall(234, os.getpid(), os.getpid(), 19)",
        "syscall(435, 0, 0)",
        "syscall(434, os.getppid(), 0)",
        "sched_setaffinity(0, 8, b'x')",
    ],
)
def test_system_calls_by_ctypes(sandbox: Sandbox, call: str) -> None:
    output = harmless(sandbox, LIBC + f"import os\nprint(libc.{call}, ctypes.get_errno())")
    assert output == "-1 1"


def test_machine_code_of_another_table_of_system_calls(sandbox: Sandbox) -> None:
    """`int 0x80` is the 32-bit table of x86; on another machine the bytes are not even code."""
    program = LIBC + (
        "libc.mmap.restype = ctypes.c_void_p\n"
        "page = libc.mmap(None, 4096, 7, 0x22, -1, 0)\n"
        "code = bytes([0xB8, 2, 0, 0, 0, 0xCD, 0x80, 0xC3])\n"
        "ctypes.memmove(page, code, len(code))\n"
        "print('result', ctypes.CFUNCTYPE(ctypes.c_int)(page)())"
    )
    output = harmless(sandbox, program)
    assert "result" not in output
    assert "died of SIG" in output


@pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd/0", "root/etc/passwd", "cwd"])
@pytest.mark.parametrize("process", ["self", "{parent}", "1"])
def test_proc(sandbox: Sandbox, file: str, process: str) -> None:
    place = f"/proc/{process}/{file}"
    refused(sandbox, f"import os\nopen({place!r}.replace('{{parent}}', str(os.getppid())), 'rb').read(1)")


def test_inherited_descriptors(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("treasure")
    program = (
        "import os, errno\nfor number in range(1024):\n"
        "  try:\n    os.lseek(number, 0, 1)\n    print(number, end=' ')\n"
        "  except OSError as error:\n    if error.errno != errno.EBADF: print(number, end=' ')\n"
        "print(os.read(0, 9))"
    )
    with open(secret) as file:
        os.set_inheritable(file.fileno(), True)
        made = Sandbox()
        assert harmless(made, program) == "0 1 2 b''" if made.run("1") else False
        made.close()


def test_big_files(sandbox: Sandbox) -> None:
    refused(sandbox, "open('/tmp/big', 'wb').write(bytes(10 ** 8))")
    refused(sandbox, "import os\nos.truncate('/tmp/big', 10 ** 12)")
    refused(sandbox, "import os\nos.ftruncate(1, 10 ** 12)")


def test_threads(sandbox: Sandbox) -> None:
    assert "can't start new thread" in harmless(sandbox, "import _thread\n_thread.start_new_thread(print, ())")


def test_another_program(sandbox: Sandbox) -> None:
    refused(sandbox, "import os\nos.execv('/bin/sh', ['sh'])")
    refused(sandbox, "import os\nos.posix_spawn('/bin/sh', ['sh'], {})")
    assert harmless(sandbox, "import os\nos.system('true') == 0") == "False"


def test_no_grandchild_outlives_a_program(sandbox: Sandbox) -> None:
    assert sandbox._process is not None
    before = members(sandbox._process.pid)
    refused(sandbox, "import os\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    while True: pass")
    harmless(sandbox, "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos._exit(0)")
    deadline = time.monotonic() + PATIENCE
    # The process that kept the last program ends after it has answered.
    while members(sandbox._process.pid).keys() - before and time.monotonic() < deadline:
        pass
    assert not members(sandbox._process.pid).keys() - before


def test_crashes_of_the_interpreter(sandbox: Sandbox) -> None:
    said = harmless(sandbox, LIBC + "ctypes.string_at(0)")
    assert "error: it died" in said
    assert "of SIG" in said
    assert "error: " in harmless(sandbox, "def deeper(): return deeper()\ndeeper()")
    assert "error: " in harmless(sandbox, "(" * 1900)


def test_a_program_cannot_pass_for_the_server(sandbox: Sandbox) -> None:
    forged = harmless(sandbox, "import os\nos.write(1, b'\\x00\\x00\\x00\\x01Z' * 9)\nos._exit(0)")
    assert forged.count("Z") == 9


def test_what_a_program_leaves_is_not_there_for_the_next(sandbox: Sandbox) -> None:
    harmless(sandbox, "import math, builtins\nmath.pi = 3\nbuiltins.len = None\nleft = 1")
    assert harmless(sandbox, "import math\nprint(math.pi, len('ab'), 'left' in globals())").endswith("2 False")
    assert harmless(sandbox, "import math\nmath.pi").startswith("3.14")


def test_a_program_dies_with_the_process_that_asked_for_it() -> None:
    code = (
        "import os\nfrom agentcli.worlds.tool_qa.tools.python import Sandbox\n"
        "made = Sandbox()\nmade.run('1')\nprint(made._process.pid, flush=True)\n"
        "made.run('while True: pass')"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root) as asking:
        assert asking.stdout is not None
        session = int(asking.stdout.readline())
        # Nobody else computes: the server waits.
        begun = sum(members(session).values())
        deadline = time.monotonic() + PATIENCE
        while sum(members(session).values()) < begun + 10:
            assert time.monotonic() < deadline, "the program does not run"
            time.sleep(0.01)
        asking.kill()
    deadline = time.monotonic() + PATIENCE
    while members(session) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert members(session) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
        "import sys\nsys.set_int_max_str_digits(0)\nstr(10 ** 10 ** 7)",
        "10 ** 10 ** 10",
        "import signal\nfor n in {*range(1, 32)} - {9, 19}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
        "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E",
        "import sys\nsys.settrace(lambda *_: sys.settrace(None))\nwhile True: pass",
    ],
)
def test_what_python_itself_does_not_interrupt(sandbox: Sandbox, program: str) -> None:
    begun = time.monotonic()
    assert "error: it " in harmless(sandbox, program)
    assert time.monotonic() - begun < server.WALL_SECONDS + PATIENCE


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("import os\nos.close(1)\nos.close(2)\nos._exit(7)", "error: it exited with status 7"),
        ("import os\nos.write(1, b'\\xff\\xfeok')\nNone", "\ufffd\ufffdok"),
        ("print('\\ud800')", "error: UnicodeEncodeError"),
        ("__builtins__.clear()", "error: it exited with status 1"),
        ("class E(Exception):\n  def __str__(self): raise SystemExit(0)\nraise E", "error: it exited with status 1"),
        ("import sys\nsys.modules['__main__']._run = sys.modules['__main__']._send = None", ""),
        ("class D:\n  def __del__(self):\n    while True: pass\nkept = D()", ""),
        ("int('9' * 10 ** 6)", "Exceeds the limit"),
        ("class R:\n  def __repr__(self): return 'x' * 10 ** 9\nR()", "error: MemoryError"),
        ("list(range(10 ** 9))", "error: MemoryError"),
        ("import posix\nposix.execv('/bin/sh', ['sh'])", "Operation not permitted"),
        ("import os\nos.execve('/bin/sh', ['sh'], {})", "Operation not permitted"),
        ("import os\nos.pidfd_open(os.getppid())", "Operation not permitted"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "Operation not permitted"),
        ("import gc, io\nprint([kept for kept in gc.get_objects() if isinstance(kept, io.RawIOBase)])", "[]"),
    ],
)
def test_tricks_with_the_interpreter(sandbox: Sandbox, program: str, output: str) -> None:
    assert output in harmless(sandbox, program)
