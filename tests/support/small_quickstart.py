"""The quickstart as a stranger types it, at a size of a minute or two: its script, its folder, its names."""

import os
import re
import subprocess
import sys
from pathlib import Path

from typed_pages import ROOT

SMALL_GAMES = {
    "AGENTCLI_ENVIRONMENT__OPTIONS__CLUTTER": "3",
    "AGENTCLI_ENVIRONMENT__OPTIONS__GAMES__TRAIN": "12",
    "AGENTCLI_ENVIRONMENT__OPTIONS__GAMES__VALID_SEEN": "4",
    "AGENTCLI_ENVIRONMENT__OPTIONS__GAMES__VALID_UNSEEN": "4",
}
"""Options that only the quickstart's world has."""
SMALL = SMALL_GAMES | {
    "AGENTCLI_ENVIRONMENT__MAX_STEPS": "8",
    "AGENTCLI_DEMOS__COUNT": "120",
    "AGENTCLI_SFT__UPDATES": "200",
    "AGENTCLI_ROLLOUT__TASKS_PER_STEP": "3",
    "AGENTCLI_RUN__ITERATIONS": "2",
}
"""What makes the preset small. Everything else is as it is shipped."""

EXTRAS = re.findall(r'install\.sh" "\$folder/\.venv" (\S+)', (ROOT / "scripts/quickstart.sh").read_text())[0].split(",")
"""What the quickstart's environment has."""


def make_clone(folder: Path) -> Path:
    """A checkout with what pages name beside the quickstart's folder; returns that folder, with its runs."""
    folder.mkdir()
    for name in ("examples", "scripts", "presets"):
        (folder / name).symlink_to(ROOT / name)
    quickstart = folder / "quickstart"
    pretend_installed(quickstart / ".venv")
    environ = {**os.environ, **SMALL, "AGENTCLI_CACHE": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    script = [ROOT / "scripts/quickstart.sh", quickstart]
    ended = subprocess.run(script, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return quickstart


def pretend_installed(venv: Path) -> None:
    """Puts this environment in the place that the script installs into, with the stamp that it is whole."""
    venv.mkdir(parents=True)
    for entry in Path(sys.prefix).iterdir():
        if entry.name != ".agentcli-installed":
            (venv / entry.name).symlink_to(entry)
    stamp = f'printf "%s" "{",".join(EXTRAS)} {ROOT} $(cat {ROOT}/constraints.txt {ROOT}/pyproject.toml | cksum)"'
    (venv / ".agentcli-installed").write_bytes(
        subprocess.run(["bash", "-c", stamp], capture_output=True, check=True).stdout
    )
