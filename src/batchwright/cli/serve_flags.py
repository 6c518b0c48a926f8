"""The flags of `batchwright serve`, as one object.  Imports nothing heavy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from typer import Option

from batchwright.cli.engine import ENGINE, EngineName, Exact, KvCacheDtype, MockCost, Threads, Weights
from batchwright.cli.model import CachePath, ModelPath

BATCHING: Final = "Batching (as vLLM names it)"
HTTP: Final = "HTTP"


def _flag(panel: str, help: str, *names: str, envvar: str | None = None) -> Any:
    return Option(*names, help=help, envvar=envvar, rich_help_panel=panel)


@dataclass(frozen=True, kw_only=True)
class ServeFlags:
    """None: not given.  Times in seconds."""

    engine: EngineName = "openvino"
    path: ModelPath = None
    cache: CachePath = None
    threads: Threads = None
    kv_cache_dtype: KvCacheDtype = None
    exact: Exact = False
    weights: Weights = None
    mock_cost: MockCost = None
    served_model_name: Annotated[str | None, _flag(ENGINE, "what clients call the model")] = None
    policy: Annotated[str | None, _flag(BATCHING, "such as 'dynamic(window=0.25)'; default: vllm")] = None
    policy_file: Annotated[Path | None, _flag(BATCHING, "Python file that defines `policy`")] = None
    calibrate: Annotated[
        bool,
        _flag(BATCHING, "measure steps first, for policies that ask what a step takes", "--calibrate"),
    ] = False
    max_num_seqs: Annotated[int | None, _flag(BATCHING, "requests that run at once; default: 64")] = None
    max_num_batched_tokens: Annotated[int, _flag(BATCHING, "tokens of one step")] = 512
    max_model_len: Annotated[
        int | None, _flag(BATCHING, "prompt + output of one request; default: the model's")
    ] = None
    num_gpu_blocks_override: Annotated[
        int | None, _flag(BATCHING, "KV blocks, vLLM's null block included")
    ] = None
    enable_prefix_caching: Annotated[bool, _flag(BATCHING, "keep blocks for prompts that start alike")] = True
    host: Annotated[str, _flag(HTTP, "address to listen on")] = "127.0.0.1"
    port: Annotated[int, _flag(HTTP, "0: any that is free; it is printed")] = 8000
    api_key: Annotated[
        str | None, _flag(HTTP, "that clients must send", "--api-key", envvar="BATCHWRIGHT_API_KEY")
    ] = None
    max_queue: Annotated[int, _flag(HTTP, "requests that may wait; those beyond get a 503")] = 1000
    request_timeout: Annotated[float | None, _flag(HTTP, "seconds that a request may take; default: any")] = (
        None
    )
    grace: Annotated[float, _flag(HTTP, "seconds to finish what runs, after SIGTERM or Ctrl-C")] = 30.0
    max_body: Annotated[int, _flag(HTTP, "bytes of one request")] = 4 << 20
    enable_log_requests: Annotated[
        bool, _flag(HTTP, "log every request, its prompt included", "--enable-log-requests")
    ] = False


def serve_command(own: Callable[[ServeFlags], None]) -> Callable[..., None]:
    """The command `own(flags)` with its flags."""
    hints = get_type_hints(ServeFlags, include_extras=True)
    kind, parameter = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter

    def command(**given: Any) -> None:
        own(ServeFlags(**given))

    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(ServeFlags)]
    )
    command.__annotations__ = hints
    command.__doc__, command.__name__ = own.__doc__, own.__name__
    return command
