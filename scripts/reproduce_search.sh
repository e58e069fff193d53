#!/usr/bin/env bash
# CARL on questions about a corpus (CARL Tables 2 and 4 in shape): critical-only updates, all updates, and GRPO, from one start a seed, at
# equal sampling. An update has fewer rows where fewer responses are trained, so that all make about as many: in CARL an iteration is one.
# usage: scripts/reproduce_search.sh OUT [SEED...]      resumable; JOBS, METHODS, ITERATIONS and STEPS as in reproduce_small.sh, which it calls
#   METHODS="grpo grpo-outside search-carl search-carl-lite search-carl-random search-carl-outcome search-carl-all" has all rows of CARL's
#   tables
set -euo pipefail
out=${1:?usage: scripts/reproduce_search.sh OUT [SEED...]}
shift
(($#)) || set -- 0 1 2 3 4
REGIME=search exec "$(dirname "${BASH_SOURCE[0]}")/reproduce_small.sh" "$out" "$@"
