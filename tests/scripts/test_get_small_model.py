"""get_small_model.sh looks at what DIR holds, and runs with the active environment's Python; the download is not tried."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMOLLM2 = {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30}


def got(base: Path, config: str) -> subprocess.CompletedProcess[str]:
    """The script of a clone without .venv, in another folder, for a DIR with this config.json."""
    (base / "clone").mkdir()
    (base / "clone/scripts").symlink_to(ROOT / "scripts")
    model = base / "model"
    model.mkdir()
    (model / "config.json").write_text(config, encoding="utf-8")
    (model / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    active = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = base / "clone/scripts/get_small_model.sh"
    return subprocess.run([script, "model"], cwd=base, env=environ | active, capture_output=True, text=True)


def test_what_is_there_already_is_said(tmp_path: Path) -> None:
    done = got(tmp_path, json.dumps(SMOLLM2))
    assert done.returncode == 0, done.stderr
    assert "model holds SmolLM2-135M" in done.stderr


@pytest.mark.parametrize("config", [json.dumps({**SMOLLM2, "hidden_size": 96}), "{", "[]"])
def test_another_model_is_refused_and_named(tmp_path: Path, config: str) -> None:
    done = got(tmp_path, config)
    assert done.returncode == 2
    assert "model/config.json" in done.stderr
    assert ("96" in done.stderr) == ("96" in config)
