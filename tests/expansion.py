"""What a run did, expanded step by step and token by token: slow and obvious, to compare with.

    step_spans(run)     begin and end of every step
    token_times(run)    by request, the second of every token that its client saw
"""

from __future__ import annotations

from collections import defaultdict

from batchwright.history import EngineStep, Stay, stays, steps
from batchwright.log import DROPPED
from batchwright.run import Run
from batchwright.step import Step


def engine_steps(run: Run) -> list[EngineStep]:
    return steps(run.log, run.limits.blocks, run.limits.block_size, run.pads)


def step_spans(run: Run, stretch: object) -> list[tuple[float, float]]:
    """Steps inside a stretch are priced one by one, with the cost model's own `stretch`."""
    found, spans, tick, now = engine_steps(run), [], 0, 0.0
    jumps = dict(zip(run.log.jumps, run.log.jump_times, strict=True))
    for count, end in zip(run.log.column("steps"), run.log.seconds("times"), strict=True):
        begin = jumps.get(tick, now)
        quiet = Step()
        first = found[tick]
        quiet.quiet(first.num_decodes, first.padded_rows, first.context_tokens)
        edges = [begin, *(begin + stretch(quiet, k) for k in range(1, count)), end]  # type: ignore[operator]
        spans += [(edges[k], edges[k + 1]) for k in range(count)]
        tick, now = tick + count, end
    return spans


def decode_ticks(run: Run, stay: Stay) -> list[int]:
    if stay.since < 0:
        return []
    flat = run.log.column("held")
    held = {flat[i] for i in range(0, len(flat), 2) if flat[i + 1] == stay.seat}
    paused = set(run.log.column("paused"))
    return [tick for tick in range(stay.since, stay.stopped) if tick not in held and tick not in paused]


def seated_stays(run: Run) -> list[Stay]:
    """In order of admission; nobody is cancelled in a run that is expanded here before it has a seat."""
    return sorted((s for s in stays(run.log) if s.how != DROPPED and s.seat > 0), key=lambda s: s.seat)


def token_times(run: Run, stretch: object) -> dict[int, list[float]]:
    spans = step_spans(run, stretch)
    times: dict[int, list[float]] = defaultdict(list)
    flat = run.log.column("accepted")
    drafts = {(flat[i], flat[i + 1]): flat[i + 2] for i in range(0, len(flat), 3)}
    for stay in seated_stays(run):
        if stay.since >= 0:
            first = [stay.since - 1] if stay.since > stay.admitted else []  # else it came with its KV
            for tick in (*first, *decode_ticks(run, stay)):
                times[stay.id] += [spans[tick][1]] * (1 + drafts.get((tick, stay.seat), 0))
    return times
