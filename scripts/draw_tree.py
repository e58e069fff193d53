"""The picture of a tree: what `agentcli show RUN TREE` prints, as SVG that asks no network.

usage: python scripts/draw_tree.py RUN TREE OUT.svg [LINES]     docs/results/tree.svg: quickstart/runs/x 2, 24 lines
"""

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from agentcli.reports.show.drawing import tree_drawing
from agentcli.reports.show.trees import add_credit, find_tree, trees_file

WIDTH = 100
BLACK, RED, GREEN, YELLOW = (60, 60, 60), (190, 40, 30), (30, 125, 50), (150, 105, 0)
BLUE, PURPLE, CYAN, GREY = (
    (30, 90, 180),
    (140, 60, 140),
    (30, 110, 125),
    (120, 120, 120),
)
COLOURS = TerminalTheme(
    (250, 250, 248), (40, 40, 40), [BLACK, RED, GREEN, YELLOW, BLUE, PURPLE, CYAN, GREY]
)
# Rich's own frame fetches its letters from elsewhere; a reader's own will do.
FRAME = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace; white-space: pre }}
{styles}
</style>
<defs>{lines}</defs>
<rect fill="#fafaf8" stroke="#d0d0d0" width="{terminal_width}" height="{terminal_height}" rx="8"/>
<g transform="translate(8, 8)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def picture(run: Path, tree: str, lines: int) -> str:
    """The first lines of a tree's drawing as SVG."""
    shown = find_tree(trees_file(run, None), tree)
    add_credit(shown, run, None)
    console = Console(
        width=WIDTH,
        color_system="truecolor",
        force_terminal=True,
        record=True,
        file=io.StringIO(),
    )
    with console.capture() as capture:
        console.print(tree_drawing(shown, whole=False))
    kept = capture.get().splitlines()[:lines]
    console.export_text()  # forgets what was recorded so far
    # The empty line is the frame's lower margin.
    console.print(Text.from_ansi("\n".join([*kept, ""])), no_wrap=True)
    return console.export_svg(code_format=FRAME, unique_id="tree", theme=COLOURS)


if __name__ == "__main__":
    run, tree, out, *more = sys.argv[1:]
    Path(out).write_text(
        picture(Path(run), tree, int(more[0]) if more else 24), encoding="utf-8"
    )
