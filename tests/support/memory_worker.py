"""One of two processes that share a model: measures what `agentcli WORDS...` allocates, as torch tells it.

    torchrun --nproc-per-node 2 memory_worker.py WORDS...

Each process prints a line with the most bytes that were held at once.
"""

import sys

from command_line import agentcli
from measured_memory import peak_of


def main() -> None:
    answers = []
    peak = peak_of(lambda: answers.append(agentcli(*sys.argv[1:])))
    assert answers[0].code == 0, answers
    print(f"peak {peak}", flush=True)


if __name__ == "__main__":
    main()
