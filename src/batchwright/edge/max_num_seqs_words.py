"""The study of `max_num_seqs` for people."""

from __future__ import annotations

from math import isnan

from batchwright.edge.answer import Answer, Table, plural
from batchwright.edge.max_num_seqs import Fleet, MaxNumSeqs, Row
from batchwright.edge.seats import OUTPUT, PROMPT, resident_tokens
from batchwright.figures import amount, count, seconds, share


def answer(study: MaxNumSeqs) -> Answer:
    """What happens, why, and what to do."""
    return Answer(
        title="max_num_seqs exceeded: the queue, the wall of memory, and more GPUs",
        setting=f"{study.server}; {amount(study.rate)} requests/s (Poisson), "
        f"prompts {PROMPT[0]} to {PROMPT[1]}, outputs {OUTPUT[0]} to {OUTPUT[1]}; "
        f"mean of {plural(study.repeat, 'seed')}. "
        "Left: all there at once; right: as they come.",
        happens=[_rows(study), "", _fleets(study)],
        why=[_why(study)],
        answer=_answer(study),
    )


def _rows(study: MaxNumSeqs) -> Table:
    full = ["max_num\n_seqs", "req/s\nat most", "\nformula", "\nbatch", "\nKV", "preempted\neach"]
    arriving = ["waiting\nat end", "TTFT\nP50", "\nP99", "\nformula", "TPOT\nP50"]
    return Table([*full, *arriving], [_cells(row) for row in study.rows])


def _cells(row: Row) -> list[str]:
    return [
        str(row.max_num_seqs),
        amount(row.capacity.value),
        amount(row.capacity_form),
        count(row.batch.value),
        share(row.kv_peak.value),
        f"{row.preempted_full.value:.2f}",
        count(round(row.waiting.value)),
        seconds(row.ttft_p50.value),
        seconds(row.ttft_p99.value),
        "-" if isnan(row.ttft_p99_form) else seconds(row.ttft_p99_form),
        seconds(row.tpot_p50.value),
    ]


def _fleets(study: MaxNumSeqs) -> Table:
    titles = ["GPUs", "as", "KV tokens", "req/s", "at most", "per GPU", "TTFT P50", "P99", "TPOT P50"]
    return Table(titles, [_fleet(one) for one in study.fleets])


def _fleet(one: Fleet) -> list[str]:
    if one.error:
        return [str(one.gpus), one.way, "cannot be", *[""] * 6]
    return [
        str(one.gpus),
        one.way,
        count(one.kv_tokens),
        amount(one.rate),
        amount(one.capacity.value),
        amount(one.capacity.value / one.gpus),
        seconds(one.ttft_p50.value),
        seconds(one.ttft_p99.value),
        seconds(one.tpot_p50.value),
    ]


def _why(study: MaxNumSeqs) -> str:
    return (
        "c seats serve c / (E[o] t(c)) req/s at most. Where more come, the queue grows without end: of n "
        "requests TTFT P99 is 0.99 n (1 / X - 1 / rate) - c (1 + cv^2) / (2 X). A running request "
        f"holds E[g] / E[o] = {resident_tokens():.0f} tokens of KV, so "
        f"{count(study.kv_tokens)} tokens hold {study.wall:.0f}: from there on memory bounds "
        "the batch, and a greater limit only preempts."
    )


def _answer(study: MaxNumSeqs) -> list[str]:
    return [_limit(study), _wall(study), _gpus(study)]


def _limit(study: MaxNumSeqs) -> str:
    first = study.rows[0]
    needed = study.needed
    if needed is None:
        return f"No limit is enough for {amount(study.rate)} req/s: lower the rate or add GPUs."
    seats = plural(needed, "seat")
    if needed <= first.max_num_seqs:
        return f"{amount(study.rate)} req/s need {seats}: no limit here makes a queue."
    return (
        f"{amount(study.rate)} req/s need {seats}. Fewer make a queue: at {first.max_num_seqs} "
        f"TTFT P99 is {seconds(first.ttft_p99.value)}, with {first.waiting.value:.0f} waiting at the end; "
        "more change nothing, as nobody waits for a seat."
    )


def _wall(study: MaxNumSeqs) -> str:
    beyond = [row for row in study.rows if row.is_bound_by_memory]
    if not beyond:
        return f"Memory holds {study.wall:.0f}, which no limit here goes far beyond: seats bound the batch."
    row = beyond[-1]
    best = max(study.rows, key=lambda one: one.capacity.value)
    return (
        f"Over {study.wall:.0f} the limit is fiction: at {row.max_num_seqs} the batch is "
        f"{row.batch.value:.0f} at most, {row.preempted_full.value:.2f} preemptions per request, "
        f"{amount(row.capacity.value)} req/s against {amount(best.capacity.value)} at {best.max_num_seqs}."
    )


def _gpus(study: MaxNumSeqs) -> str:
    most = max(one.gpus for one in study.fleets if not one.error)
    able = [one for one in study.fleets if one.gpus == most and not one.error]
    best = max(able, key=lambda one: one.capacity.value)
    said = [
        f"{one.way} serves {amount(one.capacity.value)} req/s at TPOT {seconds(one.tpot_p50.value)} with "
        f"{count(one.kv_tokens)} KV tokens"
        for one in able
    ]
    return f"Of {most} GPUs {'; '.join(said)}: {best.way} serves most."
