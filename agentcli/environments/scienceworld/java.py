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
    path = java_path(environ)
    fault = _fault(path, environ)
    detail = fault or f"{path}: new enough"
    return Requisite(
        name="scienceworld java",
        present=fault is None,
        detail=detail,
        get=None if fault is None else GET,
    )


def _fault(path: str, environ: Mapping[str, str]) -> str | None:
    """Why the program cannot run the simulator; None where it can."""
    found = shutil.which(path, path=environ.get("PATH"))
    if found is None:
        return f"{path}: no such program; Java {OLDEST} or newer runs the simulator"
    try:
        reported = subprocess.run(
            [found, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path}: cannot be run ({error})"
    version = re.search(r'version "(\d+)', reported.stderr + reported.stdout)
    if reported.returncode or version is None:
        return f"{path}: is no working Java"
    if int(version[1]) < OLDEST:
        return f"{path}: Java {version[1]} is too old; {OLDEST} or newer is needed"
    return None


def jar_path() -> Path:
    """The simulator's jar. Raises ImportError where it is not installed."""
    from scienceworld.constants import JAR_PATH

    return Path(JAR_PATH)
