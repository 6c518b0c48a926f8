"""Tensor parallelism: the all-reduce against a ring of messages, and a published measurement."""

from __future__ import annotations

import pytest

from batchwright.cost import Hosted, Roofline
from batchwright.step import Step

A100 = "A100-80G-SXM"


def decode(rows: int, context: int) -> Step:
    step = Step()
    step.quiet(rows, 0, rows * context)
    return step


def ring_seconds(gpus: int, size: float, link: float) -> float:
    """Each GPU passes a part on, 2 (gpus - 1) times: once round to sum all parts, once to spread them."""
    return sum(size / gpus / link for _ in range(2 * (gpus - 1)))


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_the_all_reduce_lasts_as_long_as_a_ring_of_messages(tp: int) -> None:
    slow, free = (Roofline("H100-SXM", "llama-3.1-70b", tp, link=link) for link in (450e9, 1e30))
    per_layer = (slow.seconds(decode(64, 100)) - free.seconds(decode(64, 100))) / 80
    assert per_layer == pytest.approx(2 * ring_seconds(tp, 64 * 8192 * 2, 450e9))
    if tp == 8:
        assert per_layer == pytest.approx(8.2e-6, rel=0.01)


# Source: vllm-project/vllm#16300 (2025): QwQ-32B on A100s of 80 GB, vLLM 0.7.2, prompts of 1 token, 200
# output tokens: seconds by tensor parallelism and batch size.
MEASURED = {
    (2, 1): 5.50, (4, 1): 3.91, (8, 1): 3.15,
    (2, 16): 6.07, (4, 16): 4.77, (8, 16): 4.25,
    (2, 128): 11.34,
}  # fmt: skip
OUTPUT = 200


def predicted(cost: Hosted, rows: int) -> float:
    """Seconds of 200 tokens of so many rows, the prompts of 1 token as a decode."""
    return cost.stretch(decode(rows, 1), OUTPUT)


def calibrated() -> dict[int, Hosted]:
    """Costs by tp, from three of the measured points: bandwidth, and the time of the host.

    A synchronous engine adds its host's time: base and time per row.  Slopes between tp 2 and 8 give
    the bandwidth, the level at tp 2 the base, and 16 rows at tp 2 the time per row.
    """
    mbu, base, per_row = 1.0, 0.0, 0.0
    for _ in range(20):
        costs = {tp: Hosted(Roofline(A100, "qwq-32b", tp, mbu=mbu), base, per_row) for tp in (2, 4, 8)}
        slope = predicted(costs[2], 1) - predicted(costs[8], 1)
        mbu = min(1.0, mbu * slope / (MEASURED[2, 1] - MEASURED[8, 1]))
        base += (MEASURED[2, 1] - predicted(costs[2], 1)) / OUTPUT
        per_row += (MEASURED[2, 16] - predicted(costs[2], 16)) / OUTPUT / 16
    return costs


def test_a_measured_scaling_is_reproduced_from_three_of_its_points() -> None:
    costs = calibrated()
    found = {(tp, rows): predicted(costs[tp], rows) for tp, rows in MEASURED}
    for rows in (1, 16):
        assert found[2, rows] > found[4, rows] > found[8, rows]
        for few, many in ((2, 4), (4, 8), (2, 8)):
            ratio = found[few, rows] / found[many, rows]
            assert ratio == pytest.approx(MEASURED[few, rows] / MEASURED[many, rows], rel=0.2)
    for point in MEASURED:
        assert found[point] == pytest.approx(MEASURED[point], rel=0.15)


def test_the_defaults_know_nothing_of_that_host_and_overstate_the_gain() -> None:
    costs = {tp: Hosted(Roofline(A100, "qwq-32b", tp)) for tp in (2, 4, 8)}
    gain = predicted(costs[2], 1) / predicted(costs[8], 1)
    assert gain > 1.5 * MEASURED[2, 1] / MEASURED[8, 1]
    assert predicted(costs[2], 1) > predicted(costs[4], 1) > predicted(costs[8], 1)


def first_batch_where_two_win(costs: dict[int, Hosted], context: int, most: int = 4096) -> int:
    """Requests from which two servers of 4 GPUs give more tokens/s than one of 8."""
    return next(
        rows for rows in range(2, most, 2)
        if costs[4].seconds(decode(rows // 2, context)) < costs[8].seconds(decode(rows, context))
    )  # fmt: skip


@pytest.mark.parametrize("context", [100, 4000])
def test_two_servers_of_four_gpus_win_once_rows_outweigh_weights(context: int) -> None:
    """One of 8 reads half the weights, and its host and links have twice the rows: a line each."""
    costs = calibrated()
    two = {tp: costs[tp].seconds(decode(2, 0)) for tp in (4, 8)}
    each = {tp: (costs[tp].seconds(decode(4, 0)) - two[tp]) / 2 for tp in (4, 8)}
    # two[8] + (rows - 2) each[8] = two[4] + (rows / 2 - 2) each[4]
    rows = (two[4] - two[8] + 2 * each[8] - 2 * each[4]) / (each[8] - each[4] / 2)
    assert first_batch_where_two_win(costs, context) == pytest.approx(rows, abs=2)
    assert first_batch_where_two_win(costs, context) == 42
    default = {tp: Hosted(Roofline(A100, "qwq-32b", tp)) for tp in (4, 8)}
    assert first_batch_where_two_win(default, context) == 204
