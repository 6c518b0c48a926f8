"""The study of `max_model_len` for people."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

from batchwright.edge.answer import Answer, Table
from batchwright.edge.max_model_len import ORCA, PAGED, RESERVES, MaxModelLen, Row, Start
from batchwright.edge.seats import OUTPUT, PROMPT, resident_tokens
from batchwright.figures import amount, count, share


def answer(study: MaxModelLen) -> Answer:
    """What happens, why, and what to do."""
    return Answer(
        title="max_model_len: what is set aside for the longest request",
        setting=f"{study.server}, {count(study.kv_tokens)} KV tokens; {study.requests} requests at least, "
        f"all at once, prompts {PROMPT[0]} to {PROMPT[1]}, outputs {OUTPUT[0]} to {OUTPUT[1]}, max_tokens "
        f"{OUTPUT[1]}; mean of {study.repeat} seed{'s' if study.repeat > 1 else ''}. "
        f"The model allows {study.model_len} tokens.",
        happens=[_rows(study), "", _starts(study)],
        why=[_why(study)],
        answer=_answer(study),
    )


def _rows(study: MaxModelLen) -> Table:
    titles = ["\nengine", "max_model\n_len", "tokens\nof one", "\nMiB", "\nheld", "\nformula"]
    titles += ["KV\nwaste", "\nformula", "\nreq/s", "\nformula", "refused\nor cut"]
    return Table(titles, [_cells(row) for row in study.rows])


def _cells(row: Row) -> list[str]:
    return [
        row.policy,
        str(row.max_model_len),
        count(round(row.tokens_each)),
        amount(row.bytes_each / (1 << 20)),
        count(row.batch.value),
        count(int(row.batch_form)),
        share(row.waste.value),
        _form(row.waste_form, share),
        amount(row.capacity.value),
        _form(row.capacity_form, amount),
        share(row.shortened.value),
    ]


def _form(value: float, written: Callable[[float], str]) -> str:
    return "-" if isnan(value) else written(value)


def _starts(study: MaxModelLen) -> Table:
    titles = ["GPUs (tp)", "KV tokens", "greatest max_model_len", f"requests of {study.model_len} tokens"]
    return Table(titles, [_start(one) for one in study.starts])


def _start(one: Start) -> list[str]:
    return [str(one.tp), count(one.kv_tokens), count(one.longest), f"{one.at_model_len:.2f}"]


def _why(study: MaxModelLen) -> str:
    refused = study.starts[0]
    return (
        "M tokens of KV hold c = M / (tokens of one) requests, which serve c / (E[o] t(c)) req/s. A request "
        f"that is seen at a random step has written E[g] / E[o] = {resident_tokens():.0f} tokens; what it "
        f"takes beside is waste. At start-up, tp {refused.tp}, max_model_len {refused.longest + 1}: "
        f'"{refused.refused}".'
    )


def _answer(study: MaxModelLen) -> list[str]:
    orca = [row for row in study.rows if row.policy == ORCA and row.shortened.value == 0]
    short, long = orca[0], orca[-1]
    reserves, paged = (_of(study, policy) for policy in (RESERVES, PAGED))
    return [
        f"Where max_model_len is set aside (orca), lowering it from {long.max_model_len} to "
        f"{short.max_model_len} takes {long.batch.value:.0f} to {short.batch.value:.0f} requests at once and "
        f"{amount(long.capacity.value)} to {amount(short.capacity.value)} req/s.",
        f"Where prompt + max_tokens is (tensorrt_llm) it buys nothing: {_both(reserves)} req/s. Clients' "
        f"max_tokens does: {share(reserves[0].waste.value)} of the KV is waste.",
        f"Paged (vllm): {_both(paged)} req/s, {share(paged[0].waste.value)} waste. There it only has to pass "
        "the start-up check, and bounds what one request can take; lower than the load needs, it refuses and "
        "cuts.",
    ]


def _of(study: MaxModelLen, policy: str) -> list[Row]:
    return [row for row in study.rows if row.policy == policy]


def _both(rows: list[Row]) -> str:
    return " and ".join(f"{amount(row.capacity.value)} at {row.max_model_len}" for row in rows)
