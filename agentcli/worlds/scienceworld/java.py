"""The Java that runs the simulator: where it is, and what this machine has of it."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agentcli.environments.protocol import Requisite

OLDEST = 11
"""The oldest Java that runs it."""
GET = "apt-get install default-jre-headless, or export JAVA_HOME=DIR"
PATIENCE_SECONDS = 10.0


def java_path(environ: Mapping[str, str]) -> str:
    """The program: $JAVA_HOME's, else the first on the PATH."""
    home = environ.get("JAVA_HOME")
    # The simulator runs in a folder of its own.
    return os.path.abspath(os.path.join(home, "bin", "java")) if home else "java"


def java_here(environ: Mapping[str, str]) -> Requisite:
    """The Java of this machine, as it reports itself."""
    detail, present = _examined(java_path(environ), environ)
    get = None if present else GET
    return Requisite(name="scienceworld java", present=present, detail=detail, get=get)


def _examined(path: str, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The program with its version or its fault, and whether it runs the simulator."""
    program = shutil.which(path, path=environ.get("PATH"))
    if program is None:
        fault = f"{path}: no such program; Java {OLDEST} or newer runs the simulator"
        return fault, False
    try:
        reported = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program}: cannot be run ({error})", False
    version = re.search(r'version "(\d+)', reported.stderr + reported.stdout)
    if reported.returncode or version is None:
        return f"{program}: is no working Java", False
    if int(version[1]) < OLDEST:
        fault = f"Java {version[1]} is too old; {OLDEST} or newer is needed"
        return f"{program}: {fault}", False
    return f"{program}: Java {version[1]}", True


def jar_path() -> Path:
    """The simulator's jar. Raises ImportError where it is not installed."""
    from scienceworld.constants import JAR_PATH

    return Path(JAR_PATH)
