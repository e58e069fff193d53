"""Real browsers, driven headless through browser_bridge.mjs; scripts/test_browser.sh installs what they need."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PACKAGES = Path(os.environ.get("PAGE_BROWSERS", HERE.parents[1] / ".browsers"))
"""Where npm put puppeteer-core and axe-core."""
EXECUTABLES = {"chrome": ("chromium", "chromium-browser", "google-chrome"), "firefox": ("firefox-esr", "firefox")}


class Browser:
    """One headless browser with one page."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        found = [path for path in map(shutil.which, EXECUTABLES[kind]) if path]
        node = shutil.which("node")
        if not (found and node and (PACKAGES / "node_modules/puppeteer-core").is_dir()):
            pytest.skip(f"needs node and {kind}; install them with: scripts/test_browser.sh")
        command = [node, str(HERE / "browser_bridge.mjs"), kind, found[0], str(PACKAGES)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, name: str, *values: Any) -> Any:
        """The answer to one command of the bridge."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([name, *values]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(f"{name} {values}: {answer['error']}")
        return answer["value"]

    def open(self, page: Path, view: str = "", width: int = 1400, scheme: str = "light") -> None:
        """Opens a view of a page from disk, and waits until it is drawn."""
        self.ask("open", f"{page.absolute().as_uri()}#{view}", width, scheme)

    def go(self, view: str) -> None:
        """Goes to another view of the same page, as a link does."""
        self.run(
            "new Promise((done) => { const before = document.documentElement.dataset.ready;"
            f"location.hash = {json.dumps(view)}; const look = () => document.documentElement.dataset.ready !== before"
            " ? done() : setTimeout(look, 5); look(); })"
        )

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.ask("run", expression)

    def text(self, selector: str) -> str:
        """The text of the first element that fits."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def close(self) -> None:
        """Ends the browser."""
        self.ask("close")
        self._process.wait()
