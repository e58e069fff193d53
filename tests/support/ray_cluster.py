"""A Ray cluster of a head and two nodes on this machine, with a token of its own; and what its ports say to a stranger."""

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from processes import as_here, below

SECONDS = 120.0
Address = tuple[str, int]


class Nodes:
    """The cluster; its head holds no worker."""

    def __init__(self, folder: Path) -> None:
        token = folder / "token"
        token.write_text(secrets.token_hex(32), encoding="utf-8")
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A busy machine may take longer than half a minute to start a process.
            "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
        }
        self._processes: list[subprocess.Popen[str]] = []
        self._home = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp")
        self._port, self.client = free_ports(2)

    def start(self) -> None:
        """Starts the head, then the nodes."""
        self._start(
            "--head",
            f"--port={self._port}",
            f"--ray-client-server-port={self.client}",
            f"--temp-dir={self._home.name}",
            "--num-cpus=0",
            "--include-dashboard=false",
        )
        for _ in range(2):
            self._start(f"--address=127.0.0.1:{self._port}", "--num-cpus=1")

    def _start(self, *words: str) -> None:
        """Starts a node, and waits until it says that it runs."""
        ray = Path(sys.executable).with_name("ray")
        process = subprocess.Popen(
            [ray, "start", *words, "--node-ip-address=127.0.0.1", "--block", "--object-store-memory=100000000"],
            env={**as_here(), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ray runtime started" in line:
                return
        raise AssertionError("".join(lines))

    def stop(self) -> None:
        """Kills every process of it."""
        for process in self._processes:
            kill([*below(process.pid), process.pid])
            process.communicate(timeout=SECONDS)
        self._home.cleanup()


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def kill(processes: Iterable[int]) -> None:
    """Kills those that still run."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def gone(processes: Iterable[int]) -> None:
    """Waits until all have ended."""
    for process in processes:
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([handle], [], [], SECONDS)
        command = Path(f"/proc/{process}/cmdline")
        assert ended, command.read_bytes()
        os.close(handle)


def listening(processes: Iterable[int]) -> list[Address]:
    """The addresses at which these listen for TCP."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                sockets[f"socket:[{fields[9]}]"] = _address(fields[1])
    addresses = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                addresses.add(sockets.get(os.readlink(link)))
    return sorted(address for address in addresses if address is not None)


def _address(text: str) -> Address:
    host, _, port = text.partition(":")
    numbers = reversed(bytes.fromhex(host)) if len(host) == 8 else [0]
    name = ".".join(map(str, numbers))
    return ("127.0.0.1" if name in ("0.0.0.0", "0") else name, int(port, 16))


METHODS = (
    "NodeInfoGcsService/GetAllNodeInfo",
    "NodeManagerService/GetNodeStats",
    "CoreWorkerService/GetCoreWorkerStats",
    "ObjectManagerService/Push",
    "ObjectManagerService/Pull",
    "ReporterService/GetTraceback",
)


def greeting(host: str, port: int) -> str:
    """What a port gives to a stranger: "" where it asks for a token or knows none of what is asked.

    Raises AssertionError for a port that neither answers nor refuses.
    """
    import grpc

    try:
        with urllib.request.urlopen(f"http://{host}:{port}/", timeout=SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return "" if error.code == 401 else f"HTTP {error.code}"
    except (OSError, ValueError):
        pass
    except Exception as error:
        if type(error).__name__ != "BadStatusLine":
            raise
    refusals = set()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        for method in METHODS:
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=SECONDS)
            except grpc.RpcError as error:
                refusals.add(error.code().name)
            else:
                return f"answers {method}"
    assert refusals <= {"UNAUTHENTICATED", "UNIMPLEMENTED"}, (host, port, refusals)
    assert "UNAUTHENTICATED" in refusals, (host, port, refusals)
    return ""
