"""install.sh takes torch's CPU build where no GPU is: from its wheel index if that answers within seconds, else what pip finds."""

import http.server
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[2] / "scripts" / "install.sh"
RECORDER = '#!/bin/sh\nprintf "%s\\n" "$*" >>"$RECORD"\n'
BACKEND = """
import zipfile

def build_editable(folder, *_):
    with zipfile.ZipFile(f"{folder}/own-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("own-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: own\\nVersion: 1\\nRequires-Dist: torch>=2\\n")
        wheel.writestr("own-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("own-1.dist-info/RECORD", "")
    return "own-1-py3-none-any.whl"
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "own"
version = "1"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The script in a checkout of a package that needs torch alone."""
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts/install.sh").write_bytes(INSTALL.read_bytes())
    (folder / "constraints.txt").write_text("torch==2.13.0\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    return folder


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A wheel index on loopback; it has torch 2.13.0+cpu."""
    folder = tmp_path / "index"
    write_wheel(folder / "torch", "2.13.0+cpu")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def mute() -> Iterator[str]:
    """An index that accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def closed() -> str:
    """An index where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def write_wheel(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    about = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def install(clone: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "TORCH_INDEX"}
    command = ["bash", str(clone / "scripts/install.sh"), str(clone / "venv"), "tools"]
    python = {"PYTHON": sys.executable}
    return subprocess.run(command, env=environ | python | variables, capture_output=True, text=True, timeout=300)


def asked_of_pip(clone: Path, **variables: str) -> tuple[list[str], str]:
    """How torch is installed, as pip is called, and what the user reads; a recorder stands in for pip."""
    python = clone / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(RECORDER)
    python.chmod(0o755)
    done = install(clone, RECORD=str(clone / "record"), **variables)
    assert done.returncode == 0, done.stderr
    torch, package = (clone / "record").read_text().splitlines()
    assert "--editable" in package
    words = torch.split()
    return words[words.index("torch") :], done.stderr


def test_an_index_that_answers_gives_torch(clone: Path, index: str) -> None:
    assert asked_of_pip(clone, TORCH_INDEX=index)[0] == ["torch", "--index-url", index]


def test_an_index_that_does_not_answer_leaves_torch_to_pip_and_says_so(clone: Path) -> None:
    index = closed()
    words, said = asked_of_pip(clone, TORCH_INDEX=index)
    assert words == ["torch"]
    assert index in said


@pytest.mark.slow
def test_an_index_that_never_answers_is_given_up_within_seconds(clone: Path, mute: str) -> None:
    assert asked_of_pip(clone, TORCH_INDEX=mute)[0] == ["torch"]


def test_where_a_gpu_is_torch_is_what_pip_finds(clone: Path) -> None:
    tools = clone / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\n")
    (tools / "nvidia-smi").chmod(0o755)
    words, said = asked_of_pip(clone, PATH=f"{tools}:{os.environ['PATH']}")
    assert words == ["torch"]
    assert "does not answer" not in said


def test_another_file_of_pins_may_be_named(clone: Path) -> None:
    asked_of_pip(clone, TORCH_INDEX="", CONSTRAINTS=os.devnull)
    assert [f"--constraint {os.devnull}" in line for line in (clone / "record").read_text().splitlines()] == [
        True,
        True,
    ]


def test_no_index_leaves_torch_to_pip(clone: Path) -> None:
    assert asked_of_pip(clone, TORCH_INDEX="")[0] == ["torch"]


@pytest.mark.slow
@pytest.mark.parametrize(("answers", "version"), [(True, "2.13.0+cpu"), (False, "2.13.0")])
def test_pip_itself_installs_that_build(clone: Path, index: str, answers: bool, version: str) -> None:
    """pip in an environment of its own, which otherwise finds the other build in a folder."""
    write_wheel(clone / "wheels", "2.13.0")
    # Both are there to be found where the index answers, and the CPU's is the newer one.
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(clone / "wheels"), "PIP_NO_CACHE_DIR": "1"}
    done = install(clone, TORCH_INDEX=index if answers else "", PIP_INDEX_URL=closed(), PIP_RETRIES="0", **pip)
    assert done.returncode == 0, done.stderr
    listed = [clone / "venv/bin/python", "-m", "pip", "list", "--format=freeze"]
    assert f"torch=={version}\n" in subprocess.run(listed, capture_output=True, text=True, check=True).stdout
