"""Runs that several test files look at."""

from grown_runs import grown, run

__all__ = ["grown", "run"]
