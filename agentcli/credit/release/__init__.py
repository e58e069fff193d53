"""The authors' released code, where it differs from their paper (`form: release`).

PARTS lists, method by method, what takes the place of the paper's part of the same
name in `assign` (registry.with_release). It is only for comparison with published
numbers: tests compare it with golden vectors from the released code (tests/golden). The
walk over a tree, the search and the normalisation are our own code.
"""

from typing import Any

from agentcli.credit.release.dpepo import ReleaseRepetition
from agentcli.credit.release.group import (
    ReleaseGrouping,
    ReleaseLeaves,
    UncentredGrouping,
)
from agentcli.credit.release.rewardflow import release_moves
from agentcli.credit.rlvmr import RlvmrSettings
from agentcli.credit.survey import Survey, survey_of
from agentcli.records.types import Tree, Validity


def forgiving_survey(tree: Tree, settings: RlvmrSettings) -> Survey:
    """The survey of rlvmr's release (Tencent/digitalhuman).

    Only malformed steps are invalid: they lose their tag and are penalised.
    """
    survey = survey_of(tree, settings)
    survey.invalid = [step.validity is Validity.MALFORMED for step in tree.steps]
    survey.penalties = [settings.invalid_penalty * own for own in survey.penalised]
    return survey


PARTS: dict[str, dict[str, Any]] = {
    "grpo": {"leaves_of": ReleaseLeaves},
    "grpo_prm": {"leaves_of": ReleaseLeaves},
    "spark": {"leaves_of": ReleaseLeaves},
    "rloo": {"leaves_of": ReleaseLeaves},
    "gigpo": {"leaves_of": ReleaseLeaves, "grouping_of": ReleaseGrouping},
    "rewardflow": {"leaves_of": ReleaseLeaves, "moves_by": release_moves},
    "rlvmr": {
        "leaves_of": ReleaseLeaves,
        "grouping_of": UncentredGrouping,
        "survey_by": forgiving_survey,
        # A first step counts as following an invalid one.
        "first_mends": True,
    },
    "dpepo": {"leaves_of": ReleaseLeaves, "repetition_of": ReleaseRepetition},
}
"""By module: the names of parameters of `assign`, and what the release has for them."""
