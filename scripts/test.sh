#!/usr/bin/env bash
# Sets up .venv with the test extra, then runs the suite in two processes, a file in one of them. Arguments go to pytest:
# -m "slow or not slow" adds what .ci/run has besides. Without Java 11 or newer the tests of ScienceWorld are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh .venv alfworld,test
.venv/bin/python - <<'END' || set -- -k "not scienceworld" "$@"
import os, sys
from agentcli.worlds.scienceworld.simulator import java_here
java = java_here(os.environ)
sys.exit(None if java.present else f"{java.detail}; the tests of ScienceWorld are left out; to have them: {java.get}")
END
exec .venv/bin/python -m pytest -n 2 --dist loadfile "$@"
