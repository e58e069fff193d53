#!/usr/bin/env bash
# Sets up .venv with the test extra, then runs the suite in two processes, a file in one of them. Arguments go to pytest:
# Java 11 or newer must be there (ScienceWorld). -m "slow or not slow" adds what .ci/run has besides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh .venv alfworld,test
exec .venv/bin/python -m pytest -n 2 --dist loadfile "$@"
