"""environment.options of WebShop: which catalogue, which goals."""

from typing import Annotated, Literal

import msgspec

from agentcli.records.section import Count, Seed

VARIABLE = "WEBSHOP_DATA"
"""The environment variable that names the folder of WebShop's files."""
GENERATOR_VERSION = 1
"""Raised whenever the same settings would make another catalogue."""
TEST_GOALS = 500
"""Goals 0 to 499 are the test split, the rest train (WebShop's own division)."""


class WebshopOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world. Without a data folder the catalogue is generated."""

    size: Literal["small", "all"] = "small"
    """Files of a data folder: small reads items_shuffle_1000.json and its companion,
    all the 1.18 million products of items_shuffle.json.
    """
    goals: Literal["synthetic", "human"] = "synthetic"
    """Who wrote the instructions; a generated catalogue has synthetic ones only."""
    products: Annotated[int, msgspec.Meta(ge=20, le=2_000_000)] = 1000
    """Products of the generated catalogue."""
    kinds: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    """Only these kinds of product are generated, e.g. [loafers, rug]; None: all."""
    tests: Count = TEST_GOALS
    """Goals of the test split."""
    seed: Seed = 0
    """Seed of the generated catalogue."""
