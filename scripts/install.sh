#!/usr/bin/env bash
# Makes a virtual environment with agentcli and everything it needs, in the versions that were tested.
# usage: scripts/install.sh VENV EXTRAS        for instance: scripts/install.sh .venv alfworld,test
# Does nothing when VENV already holds just that. PYTHON names the interpreter to use. Where no NVIDIA GPU is, torch is the build
# for CPUs, from PyTorch's own wheel index. TORCH_INDEX names another index; TORCH_INDEX= leaves the choice to pip.
# CONSTRAINTS names another file of pins; /dev/null has none.
set -euo pipefail

venv=$1 extras=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { printf 'error: %s\n' "$1" >&2; exit 4; }

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.12 python3.13; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

find_compiler() {
  local candidate
  for candidate in ${CXX:+"$CXX"} c++ g++ clang++; do
    if command -v "$candidate" >/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# torch_index: where to take torch from, or nothing.
torch_index() {
  if [[ -v TORCH_INDEX ]]; then
    printf '%s' "$TORCH_INDEX"
  elif ! command -v nvidia-smi >/dev/null && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    printf 'https://download.pytorch.org/whl/cpu'
  fi
}

# answers URL: whether it does, within five seconds.
answers() {
  timeout 5 "$python" -c 'import sys, urllib.request as web; web.urlopen(sys.argv[1]).close()' "$1" 2>/dev/null
}

python=$(find_python) || fail "Python 3.11 or newer is needed; install it, or name one with PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python has no venv module; on Debian: apt-get install python3-venv"
[[ $extras != *alfworld* ]] || { find_compiler && command -v make; } >/dev/null ||
  fail "a C++ compiler and make are needed, the PDDL engine compiles at install; on Debian: apt-get install g++ make"

pins=${CONSTRAINTS:-$root/constraints.txt}
wanted="$extras $root $(cat "$pins" "$root/pyproject.toml" | cksum)"
stamp=$venv/.agentcli-installed
[[ ! -f $stamp || $(<"$stamp") != "$wanted" ]] || exit 0

printf 'installing agentcli[%s] into %s (minutes the first time)\n' "$extras" "$venv" >&2
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
# The planner's build types `python`, which a plain Debian has not.
PATH=$(cd "$venv/bin" && pwd):$PATH
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --constraint "$pins")
torch=(torch) index=$(torch_index)
if [[ -n $index ]] && answers "${index%/}/torch/"; then
  torch+=(--index-url "$index")
elif [[ -n $index ]]; then
  printf '%s does not answer: torch is what pip finds, with CUDA if that is PyPI (several GB)\n' "$index" >&2
fi
"${pip[@]}" "${torch[@]}"
"${pip[@]}" --editable "${root}[$extras]"
printf '%s' "$wanted" >"$stamp"
