"""What the embedded retriever needs for a corpus file: seconds to index it, memory, and milliseconds a query.

The documents are generated: 100 words each, as the passages of the 2018 Wikipedia, of a vocabulary whose frequencies fall as Zipf's law has
it. The file is written first, by the same command, and is kept for the next time.

    python scripts/bench_corpus.py --documents 200000 --file /tmp/corpus.jsonl
"""

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from agentcli.worlds.search_qa.retrievers import EmbeddedRetriever, read_corpus

WORDS, VOCABULARY, EXPONENT = 100, 500_000, 1.1
QUERIES, WORDS_OF_QUERY, RESULTS = 50, 6, 10
BLOCK = 10_000
MIB = 2**20


def texts(count: int) -> Iterator[str]:
    """The words of each document, block by block."""
    rng = np.random.default_rng(0)
    left = count
    while left:
        block = min(left, BLOCK)
        ranks = rng.zipf(EXPONENT, size=(block, WORDS)) % VOCABULARY
        for row in ranks:
            yield " ".join(f"w{rank}" for rank in row)
        left -= block


def write_corpus(path: Path, count: int) -> None:
    """Writes a corpus of `count` documents."""
    with path.open("wb") as file:
        for place, text in enumerate(texts(count)):
            row = {"id": str(place), "contents": f'"Title {place}"\n{text}'}
            file.write(msgspec.json.encode(row) + b"\n")


def memory() -> tuple[int, int]:
    """Bytes that this process has now, and had at most."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize(), peak * 1024


def main() -> None:
    """Prints one line of figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    if not options.file.exists():
        write_corpus(options.file, options.documents)
    before, _ = memory()
    start, cpu = time.perf_counter(), time.process_time()
    retriever = EmbeddedRetriever(read_corpus(options.file))
    retriever.search(["w1"], 1)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    now, peak = memory()
    milliseconds = []
    for text in texts(QUERIES):
        query = " ".join(text.split()[:WORDS_OF_QUERY])
        start = time.perf_counter()
        retriever.search([query], RESULTS)
        milliseconds.append(1000 * (time.perf_counter() - start))
    print(
        f"{options.documents:,} documents ({options.file.stat().st_size / MIB:.0f} MiB): indexed in {wall:.0f} s ({cpu:.0f} s of processor), "
        f"{(now - before) / MIB:.0f} MiB kept, {(peak - before) / MIB:.0f} MiB at most; "
        f"a query {np.median(milliseconds):.1f} ms, 95th percentile {np.percentile(milliseconds, 95):.1f} ms"
    )


if __name__ == "__main__":
    main()
