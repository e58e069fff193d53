#!/usr/bin/env bash
# Sets up .venv with the test extra, then runs the suite in two processes, a file in one of them. Arguments go to pytest:
# -m "slow or not slow" adds what .ci/run has besides. ScienceWorld needs Java 11 or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh .venv alfworld,test
exec .venv/bin/python -m pytest -n 2 --dist loadfile "$@"
