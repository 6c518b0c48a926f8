"""Names of GPUs, engines and models as users write them, and as a package with measurements does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from batchwright.errors import InputError, nearest
from batchwright.hardware import GPUS as CATALOGUE
from batchwright.hardware import MODELS, Gpu, Model
from batchwright.hardware import find_gpu as catalogue_gpu
from batchwright.hardware import find_model as catalogue_model
from batchwright.operators.package import ENGINES, Package

GPUS: Final = {  # our names where they are not the package's in other letters
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "a100_80g_sxm": "a100_sxm",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
WEIGHTS: Final = {"awq": "int4_wo", "gptq": "int4_wo"}  # vLLM's names of quantisations, and the package's
KV: Final = {"auto": "bfloat16", "fp8_e4m3": "fp8"}


def find_gpu(package: Package, gpu: str, engine: str) -> str:
    """The package's name of a GPU on which that engine was measured.  Raises InputError."""
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r} of measured step times{nearest(engine, ENGINES)}")
    known = [system for system, engines in package.systems.items() if engine in engines]
    name = plain_gpu(gpu) if plain_gpu(gpu) in known else _of_catalogue(gpu)
    if name not in known:
        has = f"; it has them of {', '.join(known)}" if known else ""
        raise InputError(f"{package} has no measurements of {engine} on GPU {gpu!r}{has}")
    return name


def _of_catalogue(gpu: str) -> str:
    try:
        name = plain_gpu(catalogue_gpu(gpu).name)
    except InputError:
        name = plain_gpu(gpu)
    return GPUS.get(name, name)


def our_gpu(gpu: str) -> Gpu | None:
    """The GPU of the catalogue that the package calls so; None: there is none."""
    known = [name for name, other in GPUS.items() if other == gpu] or [gpu]
    return next((own for name, own in CATALOGUE.items() if plain_gpu(name) in known), None)


def plain_gpu(gpu: str) -> str:
    return gpu.lower().replace("-", "_").replace(" ", "_")


def find_model(package: Package, model: str) -> str:
    """The package's name of a model, or the folder of a config.json.  Raises InputError."""
    path = Path(model)
    folder = path.parent if path.name == "config.json" else path
    if (folder / "config.json").is_file():
        return str(folder.resolve())
    own = MODELS.get(model.lower())
    words = {model.lower(), "" if own is None else repository(own)}
    matches = [name for name in package.models if words & {name.lower(), plain(name)}]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputError(f"model {model!r} may be {' or '.join(matches)}; give the whole name")
    raise InputError(
        f"{package} does not know the model {model!r}{nearest_plain(model, package.models)}; "
        "or give the folder of its config.json"
    )


def our_model(model: str) -> Model | None:
    """The model of the catalogue that the package calls so, or that a folder describes, if there is one."""
    if (Path(model) / "config.json").is_file():
        try:
            return catalogue_model(Path(model) / "config.json")
        except InputError:
            return None
    return next((own for own in MODELS.values() if repository(own) == plain(model)), None)


def plain(name: str) -> str:
    """`llama-3.1-8b` of `meta-llama/Meta-Llama-3.1-8B`."""
    return name.rsplit("/", 1)[-1].lower().removeprefix("meta-")


def repository(model: Model) -> str:
    """The same of a model of the catalogue, whose source ends with its name."""
    return plain(model.source.rsplit(" ", 1)[-1])


def nearest_plain(model: str, known: Iterable[str]) -> str:
    return nearest(model.lower(), {plain(name) for name in known})


def weights_mode(quantization: str | None) -> str | None:
    """The package's name of a quantisation of weights; None: as the model's own configuration says."""
    return None if quantization is None else WEIGHTS.get(quantization, quantization)


def kv_mode(dtype: str) -> str:
    """The package's name of a type of KV cache.  auto: 16 bits, as an engine takes without a flag."""
    return KV.get(dtype, dtype)
