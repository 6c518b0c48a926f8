"""Cost models: closed forms against sums of single steps, theory, and errors that say what is wrong."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.cost import (
    Constant,
    Fitted,
    Hosted,
    Linear,
    Roofline,
    RunningSum,
    stretch_of,
)
from batchwright.cost.lines import sum_of_greater, sum_of_greatest
from batchwright.cost_text import cost
from batchwright.errors import BatchwrightError, CostError, InputError, LimitError
from batchwright.hardware import Gpu, Model, Quantization
from batchwright.step import Step

NO_LINK = 1e30  # bytes/s: transfers take no time

FIELDS = (
    "prefill_tokens", "num_chunks", "prefill_attention", "past_tokens", "num_decodes", "padded_rows",
    "context_tokens", "sampled_rows",
)  # fmt: skip


def make(**values: float) -> Step:
    step = Step()
    for name, value in values.items():
        setattr(step, name, value)
    return step


def contents(step: Step) -> list[float]:
    return [getattr(step, name) for name in FIELDS]


def later(step: Step, steps: int) -> Step:
    """The step that comes so many quiet steps later, by the definition in step.py."""
    after = make(**dict(zip(FIELDS, contents(step), strict=True)))
    after.context_tokens = step.context_tokens + steps * (step.num_decodes + step.padded_rows)
    return after


@st.composite
def steps(draw: st.DrawFn, quiet: bool = False) -> Step:
    step = Step()
    step.quiet(draw(st.integers(0, 512)), draw(st.integers(0, 64)), draw(st.integers(0, 4_000_000)))
    if quiet or not draw(st.booleans()):
        return step
    step.num_chunks = draw(st.integers(1, 8))
    step.prefill_tokens = step.num_chunks * draw(st.integers(1, 2048))
    step.past_tokens = draw(st.integers(0, 100_000))
    step.prefill_attention = step.prefill_tokens * (step.past_tokens + step.prefill_tokens / 2)
    step.sampled_rows += draw(st.integers(0, step.num_chunks))
    return step


def small(limit: float) -> st.SearchStrategy[float]:
    return st.floats(0, limit, allow_subnormal=False)


linears = st.builds(
    Linear,
    base=st.floats(1e-6, 1),
    prefill=small(1e-3),
    decode=small(1e-3),
    context=small(1e-6),
    prefill_attention=small(1e-9),
)


@st.composite
def fitteds(draw: st.DrawFn) -> Fitted:
    counts = sorted(draw(st.sets(st.integers(0, 4096), min_size=2, max_size=6)))
    points, seconds = [], draw(st.floats(1e-3, 1))
    for i, count in enumerate(counts):
        gap = count - counts[i - 1] if i else 0
        seconds += gap * draw(small(1e-6 if i < 2 else 1e-3))
        points.append((float(count), seconds + 0.005))
    terms = {name: draw(small(1e-3)) for name in ("chunk", "decode")}
    per_token = {name: draw(small(1e-6)) for name in ("context", "past", "prefill_attention")}
    return Fitted(points, **terms, **per_token)


rooflines = st.builds(
    Roofline,
    gpu=st.sampled_from(["H100-SXM", "A100-40G", "L4", "T4"]),
    model=st.sampled_from([
        "llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "mistral-7b-v0.1",
        "deepseek-v2-lite",
    ]),
    tp=st.sampled_from([1, 2, 4, 8]),
    mfu=st.floats(0.002, 1),  # low ones let attention cross from memory to arithmetic
    mbu=st.floats(0.1, 1),
)  # fmt: skip
splits = st.builds(
    Roofline,
    gpu=st.sampled_from(["H100-SXM", "L4"]),
    model=st.sampled_from(["mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite"]),
    tp=st.sampled_from([1, 2]),
    mfu=st.floats(0.002, 1),
    pp=st.sampled_from([1, 2, 3, 7]),
    dp=st.sampled_from([1, 2, 4]),
    ep=st.booleans(),
    router_skew=st.sampled_from([0.0, 0.8]),
    context_cv=small(2),
)
devices = st.one_of(st.builds(Constant, st.floats(1e-6, 1)), linears, fitteds(), rooflines, splits)
# Host times near the device's, so that they cross within the stretch
hosts = st.builds(Hosted, devices, base=small(0.05), per_running=small(1e-4))
models = st.one_of(devices, hosts)


def summed(seconds: Callable[[Step], float], step: Step, count: int) -> float:
    return math.fsum(seconds(later(step, j)) for j in range(count))


@given(models, steps(), st.integers(1, 300))
def test_a_stretch_is_the_sum_of_its_single_steps(model, step, count):
    assert model.stretch(step, count) == pytest.approx(summed(model.seconds, step, count), rel=1e-12)


@given(models, steps())
def test_a_stretch_of_one_step_is_that_step_to_the_last_bit(model, step):
    assert model.stretch(step, 1) == model.seconds(step)


@given(hosts, steps(), st.integers(1, 300))
def test_a_host_that_overlaps_makes_each_step_the_greater_of_both(hosted, step, count):
    def greater(now: Step) -> float:
        return max(hosted.cost.seconds(now), hosted.host_seconds(now))

    stretch = stretch_of(hosted, overlap=True)
    assert stretch(step, count) == pytest.approx(summed(greater, step, count), rel=1e-12)
    assert stretch(step, 1) == greater(step)


@given(st.integers(1, 60), st.integers(1, 200), st.integers(0, 200))
def test_a_host_crosses_the_device_at_the_right_step(rows, count, crossing):
    step = make(num_decodes=rows, context_tokens=0)
    device = Linear(base=1.0, context=1.0)  # second j takes 1 + j * rows
    hosted = Hosted(device, base=1 + crossing * rows - 0.5, per_running=0)
    expected = sum(max(1 + j * rows, hosted.base) for j in range(count))
    assert stretch_of(hosted, overlap=True)(step, count) == pytest.approx(expected, rel=1e-13)


lines = st.tuples(st.integers(0, 200), st.integers(0, 9))


@given(lines, lines, st.integers(1, 100))
def test_the_greater_of_two_lines_is_summed_exactly(a, b, count):
    expected = sum(max(a[0] + j * a[1], b[0] + j * b[1]) for j in range(count))
    assert sum_of_greater(float(a[0]), float(a[1]), float(b[0]), float(b[1]), count) == expected


@given(st.lists(lines, min_size=1, max_size=6), st.integers(1, 100))
def test_the_greatest_of_several_lines_is_summed_exactly(found, count):
    expected = sum(max(a + j * b for a, b in found) for j in range(count))
    assert sum_of_greatest([(float(a), float(b)) for a, b in found], count) == expected


@given(rooflines, steps())
def test_a_router_that_is_hardly_skewed_costs_what_a_uniform_one_does(model, step):
    if model.model.moe_layers and step.num_decodes:
        again = Roofline(model.gpu, model.model, model.tp, model.mfu, model.mbu, router_skew=1e-14)
        assert again.seconds(step) == pytest.approx(model.seconds(step), rel=1e-9)


@given(models, steps(), st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_a_function_of_a_step_costs_the_same_as_the_model_it_wraps(model, step, asked):
    before = contents(step)
    stretch = stretch_of(lambda now: model.seconds(now))
    for count in asked:
        assert stretch(step, count) == pytest.approx(model.stretch(step, count), rel=1e-12)
    assert contents(step) == before


@given(st.lists(st.tuples(steps(), st.integers(1, 20)), min_size=2, max_size=6))
def test_one_running_sum_serves_stretches_in_any_order(asked):
    model = Linear(base=1e-3, prefill=1e-6, decode=1e-5, context=1e-8)
    shared = stretch_of(model.seconds)
    one = Step()  # written anew for every stretch, as the simulator does
    for step, count in asked + asked[::-1]:
        for name, value in zip(FIELDS, contents(step), strict=True):
            setattr(one, name, value)
        assert shared(one, count) == stretch_of(model.seconds)(step, count)


@pytest.mark.parametrize("name", FIELDS)
def test_a_step_that_differs_in_anything_starts_a_new_sum(name):
    shared = RunningSum(lambda now: 1.0 + sum(contents(now))).stretch
    step = make(num_decodes=3, context_tokens=50)
    shared(step, 2)
    setattr(step, name, getattr(step, name) + 1)
    assert shared(step, 2) == RunningSum(lambda now: 1.0 + sum(contents(now))).stretch(step, 2)


def test_a_running_sum_prices_every_step_once():
    seen = []

    def seconds(now: Step) -> float:
        seen.append(now.context_tokens)
        return 0.01

    stretch = stretch_of(seconds)
    step = make(num_decodes=3, padded_rows=1, context_tokens=100)
    for count in (2, 3, 7, 4):
        stretch(step, count)
    assert seen == [100, 104, 108, 112, 116, 120, 124]


def test_a_function_may_keep_what_it_is_given():
    kept = []
    stretch = stretch_of(lambda now: kept.append(now) or 0.01)
    stretch(make(num_decodes=1, context_tokens=5), 3)
    assert [now.context_tokens for now in kept] == [5, 6, 7]


class OnlySeconds:
    def seconds(self, step: Step) -> float:
        return 0.001 * step.num_decodes


class OwnStretch(OnlySeconds):
    def stretch(self, step: Step, steps: int) -> float:
        return 7.0 * steps


def test_an_object_with_only_seconds_is_summed_and_one_with_a_stretch_is_asked():
    step = make(num_decodes=2)
    assert stretch_of(OnlySeconds())(step, 5) == pytest.approx(0.01)
    assert stretch_of(OwnStretch())(step, 5) == 35.0


@given(st.integers(1, 40))
def test_a_host_adds_to_a_plain_function_and_hides_behind_it(count):
    step = make(num_decodes=2, context_tokens=0)
    hosted = Hosted(lambda now: 1.0 + now.context_tokens, base=10.0, per_running=0.5)
    device = [1.0 + 2 * j for j in range(count)]
    assert stretch_of(hosted)(step, count) == sum(device) + 11.0 * count
    assert stretch_of(hosted, overlap=True)(step, count) == sum(max(t, 11.0) for t in device)


def test_a_host_counts_chunks_and_padded_rows_as_running():
    step = make(num_decodes=3, padded_rows=2, num_chunks=4, prefill_tokens=40)
    assert Hosted(Constant(1.0)).seconds(step) == pytest.approx(1.0 + 20e-6 + 9 * 7.5e-6)


def test_overlap_changes_nothing_without_a_host():
    step = make(num_decodes=3, context_tokens=10)
    model = Linear(base=0.5, context=0.1)
    assert stretch_of(model, overlap=True)(step, 9) == stretch_of(model)(step, 9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1e-9, None, "0.1"])
@pytest.mark.parametrize("kind", ["function", "seconds", "stretch", "hosted"])
def test_a_time_that_no_step_can_take_is_refused(value, kind):
    class Wrong:
        pass

    user = Wrong()
    if kind in ("seconds", "stretch"):
        setattr(user, kind, lambda *_: value)
    given_cost = {"function": lambda _: value, "hosted": Hosted(lambda _: value)}.get(kind, user)
    with pytest.raises(CostError, match=rf"7 decodes over 70 KV tokens is {value!r} seconds"):
        stretch_of(given_cost)(make(num_decodes=7, context_tokens=70), 2)


def test_a_time_that_turns_wrong_later_is_refused_when_it_is_reached():
    stretch = stretch_of(lambda now: 3.0 - now.context_tokens)
    step = make(num_decodes=1)
    assert stretch(step, 3) == 6.0
    with pytest.raises(CostError, match="over 3 KV tokens is 0"):
        stretch(step, 4)
    assert stretch(step, 2) == 5.0


def test_something_that_is_no_cost_is_refused():
    with pytest.raises(CostError, match="5 is no cost model"):
        stretch_of(5)


def test_a_host_of_a_host_is_refused():
    with pytest.raises(CostError, match="has a host already"):
        Hosted(Hosted(Constant(1.0)))


def test_linear_is_its_formula():
    step = make(
        prefill_tokens=100, num_chunks=2, prefill_attention=9000.0, past_tokens=30, num_decodes=7,
        padded_rows=3, context_tokens=500, sampled_rows=8,
    )  # fmt: skip
    model = Linear(base=0.5, prefill=0.01, decode=0.1, context=0.001, prefill_attention=1e-4)
    assert model.seconds(step) == pytest.approx(0.5 + 1.0 + 1.0 + 0.53 + 0.9, rel=1e-15)


def test_fitted_is_its_formula():
    model = Fitted(
        [(1, 2.0), (11, 3.0), (21, 7.0)], chunk=10, decode=100,
        context=0.25, past=0.5, prefill_attention=0.125,
    )
    step = make(prefill_tokens=6, num_chunks=2, prefill_attention=16.0, past_tokens=4, num_decodes=8,
                padded_rows=2, context_tokens=40)  # fmt: skip
    assert model.seconds(step) == (3.0 + 5 * 0.4) + 2 * 10 + 10 * 100 + 40 * 0.25 + 4 * 0.5 + 16 * 0.125
    assert model.seconds(make(num_decodes=1)) == 2.0 + 100
    assert model.seconds(make(num_decodes=31)) == 7.0 + 10 * 0.4 + 31 * 100


def test_a_fitted_of_one_piece_is_a_linear():
    step = make(prefill_tokens=6, num_chunks=2, prefill_attention=16.0, past_tokens=4, num_decodes=8,
                padded_rows=2, context_tokens=40)  # fmt: skip
    line = Fitted([(0, 1.0), (2, 1.5)], context=0.5, past=0.5, decode=2, prefill_attention=0.25)
    assert line.stretch(step, 7) == Linear(1, 0.25, 2.25, 0.5, 0.25).stretch(step, 7)


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([(0, 1)], "give two each"),
        ([], "give two each"),
        ([(0, 2), (1, 1)], "fall"),
        ([(1, 1), (1, 2)], "fall"),
        ([(0, 0), (1, 1)], "from 0 to 1 seconds"),
        ([(2, 1), (3, 2)], "from -1 to 2 seconds"),
        ([(0, 1), (1, math.nan)], "fall"),
        ([(math.nan, 1), (1, 2)], "must be from 0 to 1e"),
        ([(-1, 1), (1, 2)], "must be from 0 to 1e"),
        ([(0, 1), (1, 1e7)], "to 1e"),
    ],
    ids=str,
)
def test_fitted_refuses_points_that_no_step_can_have(points, why):
    with pytest.raises(CostError, match=why):
        Fitted(points)


@pytest.mark.parametrize("name", ["chunk", "decode", "context", "past", "prefill_attention"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_fitted_refuses_an_impossible_coefficient(name, value):
    with pytest.raises(CostError, match=f"{name} of fitted is {value}"):
        Fitted([(0, 1), (1, 2)], **{name: value})


@pytest.mark.parametrize("name", ["base", "prefill", "decode", "context", "prefill_attention"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_linear_refuses_an_impossible_coefficient(name, value):
    with pytest.raises(CostError, match=f"{name} of linear is {value}"):
        Linear(**{"base": 1.0, name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_step_without_a_positive_time_is_refused(value):
    with pytest.raises(CostError, match="seconds of constant"):
        Constant(value)
    with pytest.raises(CostError, match="base of linear"):
        Linear(base=value)


@pytest.mark.parametrize(
    "model",
    [
        Constant(seconds=0.025),
        Linear(base=5e-3, prefill=2e-5, decode=1e-5, context=4e-8, prefill_attention=1e-12),
        Roofline("A100-40G", "mixtral-8x7b", tp=4, mfu=0.5, mbu=0.8, link=1e11, fixed_seconds=1e-3),
        Roofline("H200", "mixtral-8x7b", pp=2, dp=2, ep=True, router_skew=0.5, context_cv=0.3),
        Hosted(Linear(base=1.0), base=1e-3, per_running=1e-5),
        Hosted(Roofline("L4", "mistral-7b")),
    ],
    ids=lambda model: type(model).__name__,
)
def test_cost_models_are_frozen_equal_printable_and_picklable(model):
    again = pickle.loads(pickle.dumps(model))
    step = make(num_decodes=5, context_tokens=900, sampled_rows=5)
    assert again == model and hash(again) == hash(model) and repr(again) == repr(model)
    assert again.stretch(step, 17) == model.stretch(step, 17)
    assert eval(repr(model)) == model
    for name in ("each", "base", "tp"):
        if hasattr(model, name):
            with pytest.raises(AttributeError):
                setattr(model, name, 1)


def test_cost_models_with_other_values_are_not_equal():
    assert Constant(1.0) != Constant(2.0)
    assert Linear(base=1.0) != Linear(base=1.0, context=1e-9)
    assert Roofline("L4", "mistral-7b") != Roofline("L4", "mistral-7b", mfu=0.5)
    assert Roofline("L4", "mistral-7b") != Roofline("L4", "mistral-7b", pp=2)
    assert Hosted(Constant(1.0)) != Hosted(Constant(1.0), base=1e-3)


# The roofline against published and derived numbers


def ideal(gpu: Gpu | str, model: Model | str, tp: int = 1) -> Roofline:
    return Roofline(gpu, model, tp, mfu=1.0, mbu=1.0, fixed_seconds=1e-12)


def decode(batch: int, context: int) -> Step:
    step = Step()
    step.quiet(batch, 0, batch * context)
    return step


LLAMA_2_13B = Model(
    name="llama-2-13b", layers=40, hidden=5120, heads=40, kv_heads=40, head_dim=128,
    intermediate=13824, vocab=32000, max_position_embeddings=4096,
)  # fmt: skip
EIGHT_TPU_V5E = Gpu(
    name="8 x TPU v5e", memory_bytes=8 * 16 << 30, bandwidth=8 * 8.2e11, flops=8 * 1.97e14,
    link=NO_LINK, source="Austin et al., How to Scale Your Model (2025), chapter 2",
)  # fmt: skip


# Source: Austin et al., How to Scale Your Model (2025), chapter 7: LLaMA-2-13B, 8192 tokens of context.
# Its weights include the token embedding, which is looked up and not read whole: 1 % apart at batch 1.
@pytest.mark.parametrize(("batch", "ms"), [(1, 4.98), (8, 12.13), (32, 36.65), (240, 249.09)])
def test_the_scaling_book_table_is_reproduced(batch, ms):
    step = decode(batch, 8192)
    assert ideal(EIGHT_TPU_V5E, LLAMA_2_13B).seconds(step) * 1e3 == pytest.approx(ms, rel=0.012)


# B* = F bytes / (2 W), with the published peaks
@pytest.mark.parametrize(("gpu", "tokens"), [("H100-SXM", 295), ("A100-80G-SXM", 153), ("H200", 206)])
def test_matrices_turn_compute_bound_at_the_critical_batch(gpu, tokens):
    model = ideal(gpu, "llama-3.1-8b")
    assert model.critical_tokens == pytest.approx(tokens, abs=0.5)
    assert ideal(gpu, "llama-3.1-70b").critical_tokens == pytest.approx(tokens, abs=0.5)
    below, above = decode(tokens - 3, 0), decode(tokens + 3, 0)
    assert model.seconds(below) == pytest.approx(model.seconds(decode(1, 0)), rel=1e-2)
    assert model.seconds(above) > model.seconds(decode(tokens, 0)) * 1.005


def test_calibrated_fractions_move_the_critical_batch():
    model = Roofline("H100-SXM", "llama-3.1-8b", mfu=0.6, mbu=0.75)
    assert model.critical_tokens == pytest.approx(236, abs=1)


def test_eight_bits_halve_the_bytes_and_four_quarter_them():
    shape = dict(
        layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, intermediate=14336, vocab=128256,
        max_position_embeddings=8192,
    )  # fmt: skip
    critical = {}
    for bits, arithmetic in ((8, "fp8"), (4, "16-bit")):
        stored = Quantization(method="m", weight_bits=bits, arithmetic=arithmetic)
        critical[bits] = ideal("H100-SXM", Model(name="m", quantization=stored, **shape)).critical_tokens
    assert critical[8] == pytest.approx(295, rel=0.01)  # half the bytes, twice the arithmetic
    assert critical[4] == pytest.approx(74, rel=0.01)  # a quarter of the bytes, 16-bit arithmetic


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_prefill_arithmetic_equals_a_literal_sum_over_tokens_and_layers(tokens, past):
    model = ideal("H100-SXM", "llama-3.1-8b")
    shape, peak = model.model, model.gpu.flops
    pairs = sum(past + i for i in range(1, tokens + 1))
    matrices = 2 * tokens * shape.core_parameters + 2 * shape.vocab * shape.hidden
    attention = 4 * shape.layers * shape.heads * shape.head_dim * pairs
    matrix_bytes = 2 * shape.core_parameters + 2 * shape.vocab * shape.hidden
    kv_bytes = 131072 * (tokens + past)
    band = model.gpu.bandwidth
    expected = max(matrices / peak, matrix_bytes / band) + max(attention / peak, kv_bytes / band) + 1e-12
    step = make(
        prefill_tokens=tokens, num_chunks=1, prefill_attention=tokens * (past + tokens / 2),
        past_tokens=past, sampled_rows=1,
    )  # fmt: skip
    assert model.seconds(step) == pytest.approx(expected, rel=1e-9)


def test_the_output_head_is_read_only_when_a_row_is_sampled():
    model = ideal("H100-SXM", "llama-3.1-8b")
    chunk = make(prefill_tokens=64, num_chunks=1, prefill_attention=2048.0)
    last = make(prefill_tokens=64, num_chunks=1, prefill_attention=2048.0, sampled_rows=1)
    head = 2 * 128256 * 4096 / 3.35e12
    assert model.seconds(last) - model.seconds(chunk) == pytest.approx(head, rel=1e-6)


def moe(experts: int, active: int) -> Model:
    return Model(
        name="moe", layers=1, hidden=1024, heads=8, kv_heads=8, head_dim=64, intermediate=1, vocab=8,
        max_position_embeddings=4096, moe_layers=1, experts=experts, active_experts=active,
        moe_intermediate=1024,
    )  # fmt: skip


# Source: exact mean number of distinct experts under a uniform router, E (1 - (1 - k/E)^n).
@pytest.mark.parametrize(("tokens", "distinct"), [(1, 8.0), (4, 30.53), (64, 222.4)])
def test_the_experts_that_a_batch_touches_are_read(tokens, distinct):
    model = Roofline("T4", moe(256, 8), mfu=1.0, mbu=0.01, fixed_seconds=1e-12)
    dense = Roofline("T4", moe(1, 1), mfu=1.0, mbu=0.01, fixed_seconds=1e-12)
    expert = 2 * 3 * 1024 * 1024 / (320e9 * 0.01)
    router = 2 * 255 * 1024 / (320e9 * 0.01)
    more = model.seconds(decode(tokens, 0)) - dense.seconds(decode(tokens, 0)) - router
    assert more / expert + 1 == pytest.approx(distinct, rel=2e-4)


@given(steps(), st.sampled_from(["llama-3.1-8b", "mixtral-8x7b"]), st.sampled_from([2, 4, 8]))
def test_tensor_parallel_divides_the_work_and_adds_the_all_reduce(step, name, tp):
    one, many = ideal("H100-SXM", name), ideal("H100-SXM", name, tp)
    tokens = step.prefill_tokens + step.num_decodes + step.padded_rows
    if tokens == 0:
        return
    work = (one.seconds(step) - 1e-12) / tp
    layers, hidden = one.model.layers, one.model.hidden
    ring = 2 * layers * 2 * (tp - 1) / tp * tokens * hidden * 2 / 450e9
    hops = 2 * layers * 2 * math.log2(tp) * 0.6e-6
    assert many.seconds(step) == pytest.approx(work + ring + hops + 1e-12, rel=1e-9)


def test_kv_heads_are_copied_when_there_are_more_gpus_than_heads():
    eight, sixteen = Roofline("H100-SXM", "llama-3.1-70b", 8), Roofline("H100-SXM", "llama-3.1-70b", 16)
    assert eight.kv_bytes_per_token == sixteen.kv_bytes_per_token == 327680 // 8
    assert Roofline("H100-SXM", "llama-3.1-8b").kv_bytes_per_token == 131072


def test_a_ring_over_pcie_takes_more_hops_than_a_switch():
    step, free = decode(1, 0), {"link": NO_LINK, "mfu": 1.0, "mbu": 1.0, "fixed_seconds": 1e-12}
    one = Roofline("L4", "llama-3.1-8b", 1, **free).seconds(step)
    hops = Roofline("L4", "llama-3.1-8b", 8, **free).seconds(step) - one / 8
    assert hops == pytest.approx(64 * 14 * 1e-6, rel=1e-6)


def test_a_step_without_tokens_costs_its_launch_alone():
    assert Roofline("L4", "mistral-7b", fixed_seconds=0.002).stretch(Step(), 3) == 0.006


@given(st.one_of(rooflines, splits), steps(), st.integers(1, 100))
def test_a_roofline_never_gets_cheaper_with_more_context(model, step, more):
    longer = later(step, 0)
    longer.context_tokens += more
    assert model.seconds(longer) >= model.seconds(step) * (1 - 1e-12)  # rounding


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mfu": 0.0}, "mfu of roofline is 0"),
        ({"mbu": 1.5}, "mbu 1.5 of roofline is over 1"),
        ({"mfu": math.nan}, "mfu of roofline is nan"),
        ({"link": 0.0}, "link of roofline is 0"),
        ({"fixed_seconds": -1.0}, "fixed_seconds of roofline is -1"),
    ],
)
def test_roofline_refuses_impossible_settings(settings, message):
    with pytest.raises(CostError, match=message):
        Roofline("L4", "mistral-7b", **settings)


def test_roofline_refuses_what_it_does_not_know():
    with pytest.raises(InputError, match="did you mean 'H100-SXM'"):
        Roofline("h100-sxn", "llama-3.1-8b")
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-8b'"):
        Roofline("L4", "llama-3.1-8")
    with pytest.raises(LimitError, match="tp 3 cannot split the 32 heads"):
        Roofline("L4", "llama-3.1-8b", tp=3)


# The text form


def test_a_text_describes_a_cost_model():
    assert cost("constant(0.025)") == Constant(0.025)
    assert cost(" linear(base=0.005, prefill=2e-5)\n") == Linear(base=0.005, prefill=2e-5)
    assert cost("roofline('L4', model=\"mistral-7b\", tp=2)") == Roofline("L4", "mistral-7b", tp=2)
    split = Roofline("L4", "mixtral-8x7b", pp=2, dp=4, ep=True, router_skew=0.5, context_cv=0.3)
    text = "roofline('L4', 'mixtral-8x7b', pp=2, dp=4, ep=True, router_skew=0.5, context_cv=0.3)"
    assert cost(text) == split
    assert cost("hosted(linear(1), per_running=0)") == Hosted(Linear(base=1.0), per_running=0.0)


@given(fitteds())
def test_a_printed_fitted_reads_back_as_itself(model):
    assert cost(repr(model).replace("Fitted", "fitted")) == model
    assert pickle.loads(pickle.dumps(model)) == model


@given(linears)
def test_a_printed_linear_reads_back_as_itself(model):
    assert cost(repr(model).replace("Linear", "linear")) == model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linaer(base=1)", "unknown model 'linaer'; did you mean 'linear'"),
        ("linear(bse=1)", "unknown argument 'bse'; did you mean 'base'"),
        ("linear()", "lacks base of linear"),
        ("roofline('L4')", "lacks model of roofline"),
        ("fitted(2)", r"needs a list of pairs, \[\(tokens, seconds\), ...\] as tokens, not 2"),
        ("fitted([(0, 1), (2, 3, 4)])", "needs a list of pairs"),
        ("fitted([(0, 1), (2, True)])", "needs a list of pairs"),
        ("fitted(chunk=1)", "lacks tokens of fitted"),
        (f"linear({10**400})", "needs a number as base"),
        ("linear(1, base=2)", "gives base of linear twice"),
        ("constant(1, 2, 3)", "gives constant 3 arguments; it takes seconds, empty"),
        ("constant(True)", "needs a number as seconds, not True"),
        ("constant('1')", "needs a number as seconds, not '1'"),
        ("constant(1 + 1)", r"needs a number as seconds, not 1 \+ 1"),
        ("constant(-'1')", "needs a number as seconds"),
        ("roofline('L4', 'mistral-7b', tp=1.5)", "needs a whole number as tp, not 1.5"),
        ("roofline('L4', 'mixtral-8x7b', ep=1)", "needs True or False as ep, not 1"),
        ("roofline('L4', 'mixtral-8x7b', pp=True)", "needs a whole number as pp, not True"),
        ("roofline(7, 'mistral-7b')", "needs a quoted name as gpu, not 7"),
        ("hosted(3)", "needs a cost model as cost, not 3"),
        ("linear(**{})", "unknown argument"),
        ("a.linear(base=1)", "unknown model 'a.linear'"),
        ("constant", "not of the form"),
        ("constant(1", "not of the form"),
        ("constant(" * 5000, "not of the form"),
        ("constant(" + "-" * 5000 + "1)", "not of the form"),
        ("", "not of the form"),
        ("__import__('os')", "unknown model"),
    ],
)
def test_a_wrong_text_is_refused_with_its_reason(text, message):
    with pytest.raises(InputError, match=message):
        cost(text)


def test_a_text_with_an_impossible_value_is_refused():
    with pytest.raises(CostError, match="base of linear is -1"):
        cost("linear(base=-1)")


@given(st.text(max_size=30))
def test_no_text_makes_the_parser_fail_otherwise(text):
    with pytest.raises(BatchwrightError):
        cost(text)
