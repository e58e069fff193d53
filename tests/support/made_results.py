"""A small results.json made by hand: two seeds, three methods, seven iterations, a panel of four games."""

from typing import Any

from reproduce_results import Iterations, PanelGames, Results, Run, Scores, Start

PANEL = "a" * 64
KINDS = ["clean", "clean", "place", "place"]
LEDGER = {
    "leaves": 56,
    "steps": 700,
    "forks": 0,
    "siblings": 20,
    "distinct_siblings": 15,
    "replayed_steps": 0,
    "generated_tokens": 7000,
    "prompt_tokens": 40000,
    "shared_prompt_tokens": 10000,
}


def scores(successes: list[int], samples: int) -> Scores:
    """Of the panel's four games."""
    total = samples * len(successes)
    rate = sum(successes) / total
    return Scores(
        panel=PANEL,
        samples=samples,
        n=total,
        rate=rate,
        low=rate / 2,
        high=(1 + rate) / 2,
        successes=successes,
        repetitive=0.1,
        inadmissible=0.2,
    )


def start(seed: int, **changes: Any) -> Start:
    """Succeeds in 3 of 12 samples."""
    evaluations = {
        "L0": scores([1, 1, 1, 0], 3),
        "L0-greedy": scores([1, 0, 0, 0], 1),
        "dpepo-L0": scores([1, 0, 0, 0], 3),
    }
    return Start(**{"regime": "six", "seed": seed, "policy": f"{seed}" * 64, "evaluations": evaluations} | changes)


def run(method: str, seed: int, success: list[float], l0: list[int], **changes: Any) -> Run:
    """100 steps an iteration; nothing was trained on in the first."""
    count = len(success)
    iterations = Iterations(
        success=success,
        leaves=[8] * count,
        steps=[100] * count,
        entropy=[None, *([0.1] * (count - 1))],
        advantage_min=[None, *([-2.0] * (count - 1))],
        advantage_max=[None, *([1.5] * (count - 1))],
        repetitive=[0.05] * count,
        inadmissible=[0.02] * count,
    )
    values = {
        "regime": "six",
        "method": method,
        "seed": seed,
        "start": f"{seed}" * 64,
        "settings": {"credit.method": method, "train.clip": 0.2, "train.adam_betas": [0.9, 0.98]},
        "git_commit": "c" * 40,
        "iterations": iterations,
        "evaluations": {"L0": scores(l0, 3), "L0-greedy": scores([min(1, won) for won in l0], 1)},
        "ledger": LEDGER,
        "trees": 7,
        "updated": 300,
        "given": 700,
        "updates": 14,
        "train_seconds": 12.5,
    }
    return Run(**values | changes)


LOW = [0.2] * 7
RISING = [0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4]


def made(seeds: tuple[int, ...] = (0, 1)) -> Results:
    """grpo succeeds in 6 of 12, gigpo in 9 (seed 0) and 10 (seed 1); carl has seed 0 only."""
    runs = []
    for seed in seeds:
        runs.append(run("gigpo", seed, RISING, [3, 3, 2, 1 + seed]))
        runs.append(run("grpo", seed, LOW, [2, 2, 1, 1]))
    runs.append(run("carl", seeds[0], LOW, [2, 2, 1, 1]))
    panels = {PANEL: PanelGames(name="L0", kinds=KINDS)}
    return Results(panels=panels, settings={}, starts=[start(seed) for seed in seeds], runs=runs)
