"""Weights to OpenVINO IR, once: a GGUF by OpenVINO GenAI, a Hugging Face folder by Optimum.

Each runs in a process of its own, which Ctrl-C ends at once and whose memory goes back.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from batchwright.checkpoint.needs import has
from batchwright.errors import InputError

_GGUF: Final = """
import sys, openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""
_HUGGING_FACE: Final = """
import sys
from optimum.exporters.openvino import main_export
main_export(sys.argv[1], output=sys.argv[2], task="text-generation-with-past")
"""


def gguf_to_ir(gguf: Path, folder: Path) -> None:
    """Write the IR of `gguf` into `folder`.  Raises InputError if GenAI cannot read it."""
    link = folder / "weights.gguf"  # GenAI writes beside the file that it reads
    try:
        link.symlink_to(gguf.resolve())
    except OSError:  # Windows, without the right to make links
        shutil.copyfile(gguf, link)
    failed = _run(_GGUF, str(link))
    link.unlink()
    if failed:
        raise InputError(
            f"{gguf}: OpenVINO GenAI cannot read it ({failed}); give the model's OpenVINO IR folder, or use "
            "--engine llamacpp"
        )


def hugging_face_to_ir(model: Path, folder: Path) -> None:
    """Write the IR of the folder `model` into `folder`.  Raises InputError if Optimum cannot."""
    if not has("optimum.exporters.openvino"):
        raise InputError(
            f"{model}: has safetensors, which Optimum makes an OpenVINO IR of, and it is not installed; "
            "pip install 'optimum-intel[openvino]', or give a GGUF file or an OpenVINO IR folder"
        )
    failed = _run(_HUGGING_FACE, str(model), str(folder))
    if failed:
        raise InputError(f"{model}: Optimum cannot make an OpenVINO IR of it ({failed}); give an IR folder")


def _run(program: str, *arguments: str) -> str | None:
    """Run a Python program.  None if it went well, else the last line that it said."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"
