"""How good an answer is: exact match, and two kinds of F1.

RewardFlow says only that success is 0 or 1; we take an exact match, as SQuAD's
evaluation does. CARL rewards the F1 of the words, as ASearcher computes it. Each
compares the answer with every known answer, and the best one counts.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_BLANKS = str.maketrans(dict.fromkeys(string.punctuation, " "))
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """The text in lower case, without punctuation, articles and further blanks."""
    words = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if the answer is one of the known ones once both are normalised, else 0."""
    wanted = {normalised(reference) for reference in references}
    return float(normalised(answer) in wanted)


def f1(answer: str, references: Sequence[str]) -> float:
    """The harmonic mean of precision and recall over words, of the best known answer.

    Where either text has no words left, it is 1 if both have none, else 0.
    """
    return max((_f1(answer, reference) for reference in references), default=0.0)


def _f1(answer: str, reference: str) -> float:
    given = normalised(answer).split()
    wanted = normalised(reference).split()
    if not given or not wanted:
        return float(given == wanted)
    shared = Counter(given) & Counter(wanted)
    return 2 * shared.total() / (len(given) + len(wanted))


def f1_asearcher(answer: str, references: Sequence[str]) -> float:
    """ASearcher's F1 of its evaluation: over the sets of words, of the best known answer.

    Articles stay, and punctuation becomes a blank. A text without words has 0.
    """
    scores = (_f1_of_sets(answer, reference) for reference in references)
    return max(scores, default=0.0)


def _f1_of_sets(answer: str, reference: str) -> float:
    given = {*answer.translate(_BLANKS).lower().split()}
    wanted = {*reference.translate(_BLANKS).lower().split()}
    if not given or not wanted:
        return 0.0
    return 2 * len(given & wanted) / (len(given) + len(wanted))


SCORES: dict[str, Callable[[str, Sequence[str]], float]] = {
    "exact": exact_match,
    "f1": f1,
    "f1-asearcher": f1_asearcher,
}
"""Rewards of an answer by name: RewardFlow's, SQuAD's F1, and that of CARL's evaluation."""
