"""Policies of the user's own, from a Python file that defines `policy`, or a predictor, `predict`.

`predict(request)` says how many tokens of output it expects: vLLM then admits the shortest first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from batchwright.cluster import MakesCluster
from batchwright.contract import Begins, Policy
from batchwright.errors import BatchwrightError, InputError
from batchwright.policies import Ordered, Sjf


def load_policy(path: Path) -> Policy | Begins | MakesCluster:
    """The `policy` of the file, or replicas of one.  Raises InputError if it cannot be loaded or is none."""
    module = _load(path)
    policy: Any = getattr(module, "policy", None)
    if policy is None:
        policy = _with_predictor(path, getattr(module, "predict", None))
    if isinstance(policy, type):
        name = policy.__name__
        raise InputError(f"{path}: `policy` is the class {name}; make it an object: policy = {name}()")
    if not isinstance(policy, Begins | MakesCluster) and not callable(policy):
        raise InputError(f"{path}: `policy` is {policy!r}; make it a function policy(batch), or an object")
    checked: Policy | Begins | MakesCluster = policy
    return checked


def _with_predictor(path: Path, predict: Any) -> Ordered:
    """vLLM with the shortest first, by the file's own predictor.  Raises InputError if it is none."""
    if predict is None:
        raise InputError(f"{path}: defines no name `policy`; define a function policy(batch), or an object")
    if not callable(predict) or isinstance(predict, type):
        raise InputError(f"{path}: `predict` is {predict!r}; make it a function predict(request) of tokens")
    return Ordered(order=Sjf(predict=predict))


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; give a Python file that defines `policy`")
    if path.suffix != ".py":
        raise InputError(f"{path}: is not a Python file; give one that ends in .py")
    name = f"policy_file_{path.stem}"
    spec = spec_from_file_location(name, path, loader=_AsItIs(name, str(path)))
    assert spec is not None and spec.loader is not None, "a loader was given"
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    with _beside(path), named(str(path)):
        spec.loader.exec_module(module)
    return module


class _AsItIs(SourceFileLoader):
    """Compiles the file anew: Python's cache takes an edit of the same second and size for no edit."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Let the file import its neighbours."""
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.path.pop(0)


@contextmanager
def named(source: str) -> Iterator[None]:
    """An error of the user's own code, with its place, as one line."""
    try:
        yield
    except BatchwrightError:
        raise
    except (Exception, SystemExit) as error:
        place, trace = "", error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.endswith(source.rsplit("/", 1)[-1]):
                place = f", line {trace.tb_lineno}"
            trace = trace.tb_next
        raise InputError(f"{source}{place}: {type(error).__name__}: {error}") from error
