"""`batchwright serve`: one model, one policy, OpenAI's routes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchwright.checkpoint.needs import need
from batchwright.cli.engine import EngineFlags, ReadyEngine, ready
from batchwright.cli.model import cache_folder
from batchwright.cli.serve_flags import ServeFlags
from batchwright.errors import InputError
from batchwright.limits import Limits

if TYPE_CHECKING:
    from batchwright.cost import CostModel
    from batchwright.engines.choose import Loading
    from batchwright.engines.engine import Engine
    from batchwright.engines.live import Live
    from batchwright.server.asked import Tokenizes

POLICY: Final = "vllm"
MAX_NUM_SEQS: Final = 64
MAX_MODEL_LEN: Final = 8192  # tokens, of the mock engine
KV_TOKENS: Final = 131072  # for which there is KV memory, unless the user says otherwise
SLOT_BLOCK: Final = 16  # tokens in which slots are counted, where an engine has no blocks
LAST_PORT: Final = 65535
NEEDED: Final = ("starlette", "uvicorn", "prometheus_client")


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is served: its name, its text, what its engine is loaded with."""

    name: str
    tokenizer: Tokenizes
    chosen: ReadyEngine
    loading: Loading


def serve(given: ServeFlags) -> None:
    """Listen, load the model, serve until a signal comes.  Raises BatchwrightError."""
    for module in NEEDED:
        need(module, "serve")
    from batchwright.server.desk import Patience
    from batchwright.server.run import Serving, Settings, bind, is_local

    _check(given)
    policy = policy_of_flags(given)
    model = model_of(given)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if given.enable_log_requests else logging.WARNING,
        format="%(message)s",
    )
    listener = bind(given.host, given.port)
    host = f"[{given.host}]" if ":" in given.host else given.host
    _say(f"{model.name}: listens on http://{host}:{listener.getsockname()[1]}/v1; loading the model")
    if not is_local(given.host) and given.api_key is None:
        _say(f"  anybody who reaches {given.host} can use it; give an --api-key")

    def load() -> tuple[Live, Tokenizes]:
        return driver(given, policy, model, _say), model.tokenizer

    settings = Settings(
        name=given.served_model_name or model.name,
        grace=given.grace,
        max_body=given.max_body,
        api_key=given.api_key,
        logs_requests=given.enable_log_requests,
        patience=Patience(max_queue=given.max_queue, request_timeout=given.request_timeout),
    )
    serving = Serving(settings, listener, load, _say)
    serving.run()
    if serving.is_computing:  # in native code, which aborts if Python ends around it
        os._exit(0)


def _say(line: str) -> None:
    print(line, flush=True)


def _check(given: ServeFlags) -> None:
    """Raises InputError on a value that cannot be."""
    for flag, value, least in (
        ("--max-queue", given.max_queue, 1),
        ("--num-gpu-blocks-override", given.num_gpu_blocks_override, 2),  # one is vLLM's null block
        ("--max-body", given.max_body, 1),
        ("--grace", given.grace, 0),
        ("--request-timeout", given.request_timeout, 0.001),
    ):
        if value is not None and not value >= least:
            raise InputError(f"{flag} is {value}, but must be at least {least}")
    if not 0 <= given.port <= LAST_PORT:
        raise InputError(f"--port is {given.port}, but must be 0 to {LAST_PORT}")
    if given.api_key == "":
        raise InputError("--api-key is empty; give a key, or leave it out")
    if given.policy is not None and given.policy_file is not None:
        raise InputError("--policy is given together with --policy-file; leave one of them out")
    if given.calibrate and given.engine == "mock":
        raise InputError("--calibrate is given, but what a step takes is --mock-cost here; leave it out")


def policy_of_flags(given: ServeFlags) -> Any:
    from batchwright.cluster import MakesCluster, server
    from batchwright.scenario.policy_file import load_policy

    named = given.policy or POLICY
    found = server(named) if given.policy_file is None else load_policy(given.policy_file)
    if isinstance(found, MakesCluster):
        name = given.policy_file or named
        raise InputError(f"{name}: has several replicas, but one engine is served; give a single policy")
    return found


def model_of(given: ServeFlags) -> Model:
    """The model and its tokenizer; a mock has no model, but the tokenizer of a folder, if one is given."""
    is_mock = given.engine == "mock"
    chosen = ready(
        EngineFlags(
            engine=given.engine,
            path=None if is_mock else given.path,
            cache=cache_folder(given.cache),
            threads=given.threads,
            kv_cache_dtype=given.kv_cache_dtype,
            exact=given.exact,
            weights=given.weights,
            mock_cost=given.mock_cost,
        )
    )
    folder = given.path if chosen.checkpoint is None else chosen.checkpoint.tokenizer_dir
    tokenizer = _tokenizer(folder)
    name = folder.resolve().name if is_mock and folder is not None else chosen.model
    loading = _loading(given, chosen, tokenizer.vocab_size)
    return Model(name=name, tokenizer=tokenizer, chosen=chosen, loading=loading)


def _tokenizer(folder: Path | None) -> Tokenizes:
    """The one in `folder`, or one for a mock."""
    if folder is None:
        from batchwright.server.nonsense import Nonsense

        return Nonsense()
    from batchwright.checkpoint import Tokenizer

    return Tokenizer(folder)


def _loading(given: ServeFlags, chosen: ReadyEngine, vocab_size: int) -> Loading:
    """What the engine is loaded with.  Raises BatchwrightError."""
    longest, blocks = _max_model_len(given, chosen.longest), given.num_gpu_blocks_override
    room = chosen.loading(_max_num_seqs(given, longest), longest, None if blocks is None else blocks - 1)
    return replace(room, most_kv_tokens=KV_TOKENS, vocab_size=vocab_size)


def _max_model_len(given: ServeFlags, most: int | None) -> int:
    """What is given, or what the model allows.  Raises InputError on more than that."""
    asked = given.max_model_len
    if asked is not None and most is not None and asked > most:
        raise InputError(f"--max-model-len is {asked}, but the model allows {most}; lower it")
    return asked if asked is not None else most or MAX_MODEL_LEN


def _max_num_seqs(given: ServeFlags, longest: int) -> int:
    """What is given, or the default: with slots instead of blocks, as many as the KV memory holds."""
    if given.max_num_seqs is not None:
        return given.max_num_seqs
    return min(MAX_NUM_SEQS, max(KV_TOKENS // longest, 1)) if given.engine == "llamacpp" else MAX_NUM_SEQS


def driver(given: ServeFlags, policy: Any, model: Model, say: Callable[[str], None]) -> Live:
    """The driver on its engine; what they are is said."""
    from batchwright.engines.choose import load_engine
    from batchwright.engines.live import Live

    loading = model.loading
    loaded = load_engine(given.engine, loading)
    capacity = loaded.engine.capacity
    size = capacity.block_size or SLOT_BLOCK
    slots = loading.max_num_seqs * -(-loading.max_model_len // size)
    limits = capacity.settle(
        Limits(
            max_num_seqs=loading.max_num_seqs,
            max_num_batched_tokens=given.max_num_batched_tokens,
            max_model_len=loading.max_model_len,
            block_size=size,
            num_kv_blocks=capacity.num_kv_blocks or slots,
            enable_prefix_caching=given.enable_prefix_caching,
        )
    )
    say(f"{loaded.words}; {_words(given, limits)}")
    cost = _cost(given, policy, model, loaded.engine, limits, say)
    return Live(policy, loaded.engine, limits, cost)


def _cost(
    given: ServeFlags, policy: Any, model: Model, engine: Engine, limits: Limits, say: Callable[[str], None]
) -> CostModel:
    """What policies are told that a step takes."""
    from batchwright.cli.serve_cost import calibrated, unknown
    from batchwright.scenario.policy_file import named

    if given.engine == "mock":
        return model.loading.cost
    if not given.calibrate:
        return unknown
    with nullcontext() if given.policy_file is None else named(str(given.policy_file)):
        return calibrated(engine, limits, model.chosen.plain_ids(), policy, say)


def _words(given: ServeFlags, limits: Limits) -> str:
    named = given.policy_file or given.policy or POLICY
    caching = "" if limits.enable_prefix_caching else "no "
    return (
        f"policy {named}, max_num_seqs {limits.max_num_seqs}, max_num_batched_tokens "
        f"{limits.max_num_batched_tokens}, max_model_len {limits.longest}, {limits.blocks} KV blocks of "
        f"{limits.block_size}, {caching}prefix caching"
    )
