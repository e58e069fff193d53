#!/usr/bin/env bash
# Installs Chromium, Firefox, Node and two packages of npm, then runs the tests of the page in both browsers.
# Arguments go to pytest. Needs Debian or Ubuntu, and root or sudo for apt-get; .venv is made by scripts/test.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
as_root=()
((EUID == 0)) || as_root=(sudo)
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v firefox-esr >/dev/null || command -v firefox >/dev/null || missing+=(firefox-esr)
command -v node >/dev/null || missing+=(nodejs npm)
if ((${#missing[@]})); then
  "${as_root[@]}" apt-get update
  "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"
fi
npm install --prefix .browsers --ignore-scripts --no-audit --no-fund puppeteer-core@24 axe-core@4
exec "${PYTHON:-.venv/bin/python}" -m pytest -n 0 -m slow tests/reports/page "$@"
