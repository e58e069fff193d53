#!/usr/bin/env bash
# The tests that need Ray, in an environment of its own: scripts/test_ray.sh [FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-.venv-ray}
scripts/install.sh "$folder" ray,test
exec "$folder/bin/python" -m pytest -n 0 -m slow tests/stages/test_ray.py
