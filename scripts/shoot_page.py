"""Takes the pictures of docs/guides/looking.md from a quickstart: docs/results/view-tree.png and view-beside.png.

usage: python scripts/shoot_page.py PAGE     PAGE: what `agentcli view runs/sft runs/rl runs/x` wrote; needs scripts/test_browser.sh
"""

import sys
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
PICTURES = {
    "view-tree": (
        {
            "view": "tree",
            "run": "x",
            "line": 2,
            "step": 16,
            "credit": "rewardflow,grpo",
        },
        "light",
    ),
    "view-beside": (
        {
            "view": "tree",
            "run": "sft/evaluation/greedy",
            "line": 6,
            "step": 3,
            "beside": "rl/evaluation/greedy:6",
        },
        "dark",
    ),
}
"""The view that each picture shows, and its colours."""


def main(words: list[str]) -> None:
    """Writes the pictures."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    from browsers import Browser

    browser = Browser("chrome")
    for name, (view, scheme) in PICTURES.items():
        browser.open(Path(words[0]), urlencode(view), scheme=scheme)
        browser.ask("picture", str(ROOT / f"docs/results/{name}.png"), False)
    browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
