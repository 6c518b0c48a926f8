"""Batching policies: functions that edit the batch before each step.

A policy is asked again after every event: an arrival, a finish, a KV shortage,
or a step that it edited.  Asked twice with no event between, it must edit
nothing the second time: that is what lets a simulator skip quiet steps.
"""

from __future__ import annotations

from first.batch import DECODING, PREFILLING, Batch


def chunked_prefill(b: Batch) -> None:
    """Decodes first, then chunked prefill, FCFS; preempt the newest (vLLM V1)."""
    b.decodes_run = True
    if make_room(b):
        newest = b.newest
        if newest is None or newest.state == DECODING:
            return
    budget = b.token_budget - b.num_decoding
    partial = b.newest
    if partial is not None and partial.state == PREFILLING:
        tokens = min(partial.unfilled, budget)
        if not b.chunk(partial, tokens):
            b.preempt(partial)
            return
        budget -= tokens
    while budget > 0:
        r = b.first_waiting()
        if r is None:
            return
        tokens = min(r.unfilled, budget)
        if not b.admit(r, tokens):
            return
        budget -= tokens


def prefill_first(b: Batch) -> None:
    """Whole prompts before any decode, FCFS; preempt the newest (vLLM V0)."""
    b.decodes_run = False
    budget = b.token_budget
    r = b.first_waiting()
    while r is not None and r.unfilled <= budget and b.admit(r, r.unfilled):
        budget -= r.unfilled
        r = b.first_waiting()
    if not b.chunks:
        b.decodes_run = True
        make_room(b)


def make_room(b: Batch) -> bool:
    """Preempt the newest until every decode has room for its next token."""
    short = b.decode_blocks() > b.free_blocks
    while b.decode_blocks() > b.free_blocks and b.newest is not None:
        b.preempt(b.newest)
    return short
