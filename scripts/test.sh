#!/usr/bin/env bash
# Sets up .venv with the test extra, then runs the whole suite. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh .venv alfworld,test
exec .venv/bin/python -m pytest "$@"
