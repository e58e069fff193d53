"""A written page read back: its index and its trees, as the scripts of the page read them."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

from agentcli.analysis.page.trees import TreeLine
from command_line import agentcli

BLOCK = re.compile(r'<script type="text/plain" id="([\w-]+)">([\w+/=]*)</script>')


def unpacked(page: Path) -> dict[str, Any]:
    """The JSON of every block by its id."""
    return {name: _json(text) for name, text in BLOCK.findall(page.read_text(encoding="utf-8"))}


def rows_of(index: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the list of trees, each with its fields by name."""
    return [dict(zip(TreeLine.__struct_fields__, cells, strict=True)) for cells in index["trees"]]


def viewed(page: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """`agentcli view WORDS -o PAGE`: the index, and the trees in its order."""
    answer = agentcli("view", *words, "-o", str(page), "--overwrite", "-q")
    assert (answer.code, answer.stdout) == (0, f"{page}\n"), answer
    blocks = unpacked(page)
    index = blocks["index"]
    trees = [blocks[f"block-{index['blocks'][row['block']]}"][row["place"]] for row in rows_of(index)]
    return index, trees


def prompts_of(tree: dict[str, Any]) -> list[str]:
    """The prompts, put together as the page does it: in units of UTF-16."""
    prompts: list[bytes] = []
    for step in tree["steps"]:
        start, end, middle = step["prompt"]
        earlier = prompts[step["parent"]] if step.get("parent", -1) >= 0 else b""
        text = tree["texts"][middle].encode("utf-16-le")
        prompts.append(earlier[: 2 * start] + text + earlier[len(earlier) - 2 * end :])
    return [prompt.decode("utf-16-le") for prompt in prompts]


def _json(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))
