"""Windows and latent attention in the roofline: against sums over rows and tokens, and where they are off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchwright.cost import Roofline
from batchwright.cost.attention import Attention
from batchwright.hardware import MODELS, Latent, Model, coefficients, find_gpu, kv_bytes_per_token
from batchwright.step import Step

GPU = "H100-SXM"
LATENT = MODELS["deepseek-v2-lite"]
SHORT, LONG = 128, 4096  # windows of gpt-oss and Gemma 2


def shape(window: int, window_layers: int, **more: object) -> Model:
    """A model of eight layers."""
    return Model(
        name="m", layers=8, hidden=1024, heads=8, kv_heads=2, head_dim=128, intermediate=4096, vocab=1000,
        max_position_embeddings=131072, window=window, window_layers=window_layers, **more,
    )  # fmt: skip


def attention_of(model: Model) -> Attention:
    return Attention(model, coefficients(find_gpu(GPU), model, 1, 0.6, 0.75, 1e12))


def decodes(contexts: list[int]) -> Step:
    step = Step()
    step.quiet(len(contexts), 0, sum(contexts))
    return step


def chunk(past: int, tokens: int) -> Step:
    step = Step()
    step.num_chunks, step.prefill_tokens, step.past_tokens = 1, tokens, past
    step.prefill_attention = tokens * (past + tokens / 2)
    return step


windows = st.sampled_from([2, 16, SHORT, LONG])
layers = st.integers(1, 8)


@given(windows, layers, st.integers(0, 20_000), st.integers(1, 64))
def test_rows_of_equal_context_see_exactly_the_window(window, narrow, context, rows):
    seen = attention_of(shape(window, narrow)).seen(decodes([context] * rows))
    per_row = (8 - narrow) * context + narrow * min(context, window - 1)
    assert seen.context == pytest.approx(rows * per_row / 8, rel=1e-12)


@given(windows, layers, st.lists(st.integers(0, 20_000), min_size=1, max_size=40))
def test_unequal_rows_never_see_less_than_they_do(window, narrow, contexts):
    seen = attention_of(shape(window, narrow)).seen(decodes(contexts))
    exact = sum((8 - narrow) * c + narrow * min(c, window - 1) for c in contexts) / 8
    assert seen.context >= exact * (1 - 1e-12)


@given(windows, st.lists(st.integers(0, 20_000), min_size=1, max_size=40))
def test_rows_that_are_all_over_or_all_under_the_window_are_exact(window, contexts):
    assume(min(contexts) >= window - 1 or max(contexts) <= window - 1)
    seen = attention_of(shape(window, 8)).seen(decodes(contexts))
    assert seen.context == pytest.approx(sum(min(c, window - 1) for c in contexts), rel=1e-12)


@pytest.mark.parametrize(("mean", "most"), [(0.1, 1.01), (1.0, 1.59), (3.0, 1.18), (10.0, 1.06)])
def test_exponential_contexts_are_overstated_by_at_most_58_percent(mean, most):
    rows, window = 4000, 10_001
    quantiles = [-math.log(1 - (i + 0.5) / rows) for i in range(rows)]
    contexts = [round(mean * (window - 1) * q) for q in quantiles]
    seen = attention_of(shape(window, 8)).seen(decodes(contexts)).context
    exact = sum(min(c, window - 1) for c in contexts)
    ratio = seen / exact
    expected = min(mean, 1.0) / (mean * (1 - math.exp(-1 / mean)))
    assert ratio == pytest.approx(expected, rel=5e-3) and 1.0 <= ratio < most


@given(windows, layers, st.integers(0, 10_000), st.integers(1, 8192))
def test_one_chunk_is_a_literal_sum_over_its_tokens(window, narrow, past, tokens):
    seen = attention_of(shape(window, narrow)).seen(chunk(past, tokens))
    full = sum(past + i for i in range(1, tokens + 1))
    inside = sum(min(past + i, window) for i in range(1, tokens + 1))
    assert seen.pairs == pytest.approx(((8 - narrow) * full + narrow * inside) / 8, rel=1e-12)
    assert seen.past == pytest.approx(((8 - narrow) * past + narrow * min(past, window - 1)) / 8, rel=1e-12)


def test_drafts_see_the_window_of_their_row():
    step = decodes([10_000] * 4)
    step.draft_tokens = step.prefill_tokens = 12
    step.prefill_attention = 12 * 10_000.0
    assert attention_of(shape(SHORT, 8)).seen(step).pairs == 12 * SHORT


@given(windows, layers, st.integers(0, 9000), st.integers(1, 50), st.integers(1, 400))
def test_a_stretch_across_the_edge_is_the_sum_of_its_steps(window, narrow, context, rows, count):
    model = Roofline(GPU, shape(window, narrow), mbu=0.01)  # so that attention weighs
    step = decodes([context] * rows)
    summed = math.fsum(model.seconds(step.later(j)) for j in range(count))
    assert model.stretch(step, count) == pytest.approx(summed, rel=1e-12)


@pytest.mark.parametrize("split", [{"tp": 2}, {"pp": 2}, {"dp": 2}, {"tp": 2, "ep": True}])
def test_a_stretch_across_the_edge_is_exact_over_ranks_and_stages(split):
    experts = {"moe_layers": 8, "experts": 8, "active_experts": 2, "moe_intermediate": 512}
    model = Roofline(GPU, shape(64, 4, **experts), **split)
    step = decodes([40] * 8)
    summed = math.fsum(model.seconds(step.later(j)) for j in range(60))
    assert model.stretch(step, 60) == pytest.approx(summed, rel=1e-12)


def test_a_window_of_the_longest_sequence_costs_what_none_costs():
    plain, wide = Roofline(GPU, shape(0, 0)), Roofline(GPU, shape(131073, 8))
    for step in (decodes([500, 9000]), chunk(3000, 700)):
        assert wide.seconds(step) == pytest.approx(plain.seconds(step), rel=1e-12)


def test_a_long_context_costs_a_windowed_model_less():
    plain, narrow = Roofline(GPU, shape(0, 0)), Roofline(GPU, shape(SHORT, 4))
    step = decodes([100_000] * 8)
    fixed = plain.seconds(decodes([0] * 8))
    saved = plain.seconds(step) - narrow.seconds(step)
    assert saved == pytest.approx((plain.seconds(step) - fixed) / 2, rel=0.01)


# latent attention


def test_decodes_of_latent_attention_work_on_the_vectors_that_are_cached():
    part = LATENT.latent
    assert part is not None
    model = Roofline(GPU, LATENT, mbu=1.0, mfu=1e-3, fixed_seconds=1e-9)  # bound by arithmetic
    more = model.seconds(decodes([1000] * 8)) - model.seconds(decodes([0] * 8))
    flops = 27 * 16 * 2 * (512 + 64 + 512) * 8000
    assert more == pytest.approx(flops / (989e12 * 1e-3), rel=1e-9)


def test_prompts_of_latent_attention_make_keys_and_values_of_the_past_anew():
    model = Roofline(GPU, LATENT, mbu=1.0, mfu=1e-3, fixed_seconds=1e-9)
    more = model.seconds(chunk(5000, 300)) - model.seconds(chunk(0, 300))
    pairs = 27 * 16 * 2 * (192 + 128) * 300 * 5000
    anew = 27 * 2 * 512 * 16 * (128 + 128) * 5000
    assert more == pytest.approx((pairs + anew) / (989e12 * 1e-3), rel=1e-9)


def test_reading_the_latent_cache_is_not_shared_by_tensor_parallel_gpus():
    for tp in (1, 2, 8):
        model = Roofline(GPU, LATENT, tp, mfu=1.0, mbu=0.01)
        more = model.seconds(decodes([100_000])) - model.seconds(decodes([0]))
        assert more == pytest.approx(100_000 * 27 * 576 * 2 / (3.35e12 * 0.01), rel=1e-6)


def test_a_latent_vector_is_read_once_as_key_and_once_as_value():
    latent = Latent(kv_rank=128, rope_dim=1, nope_dim=127, value_dim=128)
    model = shape(0, 0, latent=latent)
    assert model.decode_pair_flops == 2 * 8 * 8 * (2 * 128 + 1)
    assert kv_bytes_per_token(replace(model, kv_heads=1)) == 8 * 129 * 2
