"""`batchwright serve`: one model, one policy, OpenAI's routes."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchwright.checkpoint.needs import need
from batchwright.cli.serve_flags import ServeFlags
from batchwright.errors import InputError, nearest
from batchwright.limits import Limits

if TYPE_CHECKING:
    from batchwright.engines.choose import Loading
    from batchwright.engines.live import Live
    from batchwright.server.asked import Tokenizes

ENGINES: Final = ("openvino", "llamacpp", "mock")
POLICY: Final = "vllm"
MAX_MODEL_LEN: Final = 8192  # tokens, of the mock engine
KV_TOKENS: Final = 131072  # for which there are KV blocks, if not for all sequences at their longest
LAST_PORT: Final = 65535
NEEDED: Final = ("starlette", "uvicorn", "prometheus_client")


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is served: its name, its text, what its engine is loaded with."""

    name: str
    tokenizer: Tokenizes
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
        live, words = driver(given, policy, model.loading)
        _say(words)
        return live, model.tokenizer

    settings = Settings(
        name=given.served_model_name or model.name,
        grace=given.grace,
        max_body=given.max_body,
        api_key=given.api_key,
        logs_requests=given.enable_log_requests,
        patience=Patience(max_queue=given.max_queue, request_timeout=given.request_timeout),
    )
    Serving(settings, listener, load, _say).run()


def _say(line: str) -> None:
    print(line, flush=True)


def _check(given: ServeFlags) -> None:
    """Raises InputError on a value that cannot be."""
    if given.engine not in ENGINES:
        raise InputError(f"there is no engine {given.engine!r}{nearest(given.engine, ENGINES)}")
    for flag, value, least in (
        ("--threads", given.threads, 1),
        ("--max-queue", given.max_queue, 1),
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
    if given.mock_cost is not None and given.engine != "mock":
        raise InputError(f"--mock-cost is given, but the engine is {given.engine}; add --engine mock")


def policy_of_flags(given: ServeFlags) -> Any:
    from batchwright.policies import policy
    from batchwright.scenario.policy_file import load_policy

    if given.policy_file is not None:
        return load_policy(given.policy_file)
    return policy(given.policy or POLICY)


def model_of(given: ServeFlags) -> Model:
    return _mock_model(given) if given.engine == "mock" else _real_model(given)


def _mock_model(given: ServeFlags) -> Model:
    """No model, but a tokenizer, if a folder is given."""
    from batchwright.cost_text import cost
    from batchwright.engines.choose import MOCK_COST
    from batchwright.server.nonsense import Nonsense

    tokenizer: Tokenizes
    if given.path is None:
        name, tokenizer = "mock", Nonsense()
    else:
        from batchwright.checkpoint import Tokenizer

        name, tokenizer = given.path.resolve().name, Tokenizer(given.path)
    return Model(
        name=name,
        tokenizer=tokenizer,
        loading=_loading(
            given,
            MAX_MODEL_LEN,
            cost=MOCK_COST if given.mock_cost is None else cost(given.mock_cost),
            vocab_size=tokenizer.vocab_size,
        ),
    )


def _real_model(given: ServeFlags) -> Model:
    from batchwright.checkpoint import Tokenizer, find
    from batchwright.cli.model import cache_folder

    found = find(given.path, given.engine, cache_folder(given.cache))
    loading = _loading(given, found.max_model_len, ir=found.ir, gguf=found.gguf)
    return Model(name=found.name, tokenizer=Tokenizer(found.tokenizer_dir), loading=loading)


def _loading(given: ServeFlags, longest: int, **facts: Any) -> Loading:
    from batchwright.engines.choose import Loading

    blocks = given.num_gpu_blocks_override
    if blocks is not None and blocks < 2:
        raise InputError(
            f"--num-gpu-blocks-override is {blocks}, but must be at least 2: one block is vLLM's null block"
        )
    return Loading(
        threads=given.threads,
        max_num_seqs=given.max_num_seqs,
        max_model_len=longest if given.max_model_len is None else given.max_model_len,
        num_kv_blocks=None if blocks is None else blocks - 1,
        kv_cache_dtype=given.kv_cache_dtype,
        **facts,
    )


def driver(given: ServeFlags, policy: Any, loading: Loading) -> tuple[Live, str]:
    """The driver on its engine, and what it is in a line."""
    from batchwright.engines.choose import load_engine
    from batchwright.engines.live import Live

    loaded = load_engine(given.engine, loading)
    capacity = loaded.engine.capacity
    limits = capacity.settle(
        Limits(
            max_num_seqs=given.max_num_seqs,
            max_num_batched_tokens=given.max_num_batched_tokens,
            max_model_len=capacity.max_model_len,
            block_size=capacity.block_size or 16,
            num_kv_blocks=capacity.num_kv_blocks,
            enable_prefix_caching=given.enable_prefix_caching,
        )
    )
    live = Live(policy, loaded.engine, limits)
    return live, f"{loaded.words}; {_words(given, limits)}"


def _words(given: ServeFlags, limits: Limits) -> str:
    named = given.policy_file or given.policy or POLICY
    caching = "" if limits.enable_prefix_caching else "no "
    return (
        f"policy {named}, max_num_seqs {limits.max_num_seqs}, max_num_batched_tokens "
        f"{limits.max_num_batched_tokens}, max_model_len {limits.longest}, {limits.blocks} KV blocks of "
        f"{limits.block_size}, {caching}prefix caching"
    )
