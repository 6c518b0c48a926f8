"""The host that schedules: its seconds add to a step's, or hide behind them.

host = base + per_running * running + per_admission * admissions      a step
"""

from __future__ import annotations

from math import inf

from batchwright.theory.checks import not_negative, positive


def host_seconds(
    running: float, base: float, per_running: float, output: float = inf, per_admission: float = 0.0
) -> float:
    """Host seconds of a step; in the long run running / E[o] requests are admitted in each.

    Source of usual values: vLLM 0.32's schedule() and update on one CPU, 20 us + 7.5 us per running request.
    """
    not_negative("running", running)
    positive("output", output if output < inf else 1.0)
    return base + per_running * running + per_admission * running / output


def synchronous_loss(step: float, host: float) -> float:
    """Share of time lost where the device waits for the host: host / (step + host)."""
    positive("step", step)
    not_negative("host", host)
    return host / (step + host)


def step_seconds(step: float, host: float, overlapped: bool, bubble: float = 0.0) -> float:
    """Seconds from step to step: step + host, or max(step, host) + bubble where they overlap."""
    positive("step", step)
    not_negative("host", host)
    not_negative("bubble", bubble)
    return max(step, host) + bubble if overlapped else step + host


def overlap_speedup(step: float, host: float) -> float:
    """What asynchronous scheduling gains: (step + host) / max(step, host), at most 2."""
    return step_seconds(step, host, False) / step_seconds(step, host, True)


def late_end_factor(output: float) -> float:
    """Steps per request over E[o] where an end is seen a step late: (E[o] + 1) / E[o]."""
    positive("output", output)
    return (output + 1) / output


def step_for_loss(host: float, loss: float) -> float:
    """Seconds of a step under which a synchronous host costs more than `loss`: host (1 - loss) / loss."""
    positive("host", host)
    positive("loss", loss)
    return host * (1 - loss) / loss


def flood_ceiling(
    slots: int,
    output: float,
    base: float,
    work: float,
    host_base: float,
    host_per_running: float,
    per_admission: float = 0.0,
    front_end: float = 0.0,
    cpus: int = 1,
) -> float:
    """Requests/s of short requests under a synchronous host, and a front end of `front_end` s a request.

    min(1 / (E[o] ((base + host_base) / c + host_per_running) + work + per_admission), cpus / front_end).
    """
    positive("output", output)
    per_request = output * ((base + host_base) / slots + host_per_running) + work + per_admission
    return min(1 / per_request, cpus / front_end if front_end else inf)
