"""Printed tables cell by cell, and an evaluation whose numbers are easy to recognise."""

import io

from agentcli.evaluation.record import EvaluationSummary, Rate, Results, SuccessRate, WalkedPanel
from agentcli.records.types import Ledger
from msgspec.structs import asdict
from rich.console import Console, RenderableType


def text_of(table: RenderableType) -> list[list[str]]:
    """Cells of a printed table, row by row."""
    out = io.StringIO()
    Console(file=out, width=250).print(table)
    lines = [line for line in out.getvalue().splitlines() if line.startswith(("│", "┃"))]
    return [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in lines]


def results(share: float) -> Results:
    return Results(
        episodes=40,
        tasks=10,
        outcomes={},
        success=SuccessRate(rate=share, low=share - 0.1, high=share + 0.1, interval="bootstrap"),
        score=share,
        steps=7.25,
        moves=7.25,
        tokens=80.4,
        repetitive=0.125,
        explore=0.5,
        malformed=0.0,
        inadmissible=0.07,
    )


def summary(
    share: float, kinds: dict[str, Results] | None = None, pass_at_k: dict[str, Rate] | None = None
) -> EvaluationSummary:
    return EvaluationSummary(
        **asdict(results(share)),
        kinds=kinds or {},
        stage="eval",
        split="L0",
        label="L0",
        model=None,
        policy="random",
        seed=0,
        samples=4,
        temperature=1.0,
        panel=WalkedPanel(name="L0", tasks=10, sha256="0" * 64),
        ledger=Ledger(),
        pass_at_k=pass_at_k,
    )
