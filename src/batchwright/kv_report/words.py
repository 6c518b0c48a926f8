"""`batchwright kv` for people: an answer, then the arithmetic."""

from __future__ import annotations

from batchwright.figures import count, three
from batchwright.hardware import ProfileRun
from batchwright.hardware.batch_limits import UNCHUNKED
from batchwright.hardware.gpu import GIB
from batchwright.kv_report.advice import advice
from batchwright.kv_report.changes import Change
from batchwright.kv_report.lengths import by_length
from batchwright.kv_report.plan import Plan
from batchwright.kv_report.verdict import verdict
from batchwright.plain_table import plain_table, table_text


def text(made: Plan, others: list[Change], width: int) -> str:
    """All of it."""
    parts = [verdict(made), _setting(made), _memory(made, width), _requests(made, width)]
    parts += [_changes(others, made, width)] if others else []
    found = [*notes(made), *advice(made, others)]
    return "\n\n".join([*parts, "\n".join(f"- {one}" for one in found)] if found else parts)


def _setting(made: Plan) -> str:
    limits = made.limits
    split = [f"tp {made.split.tp}"] + [
        f"{name} {size}" for name, size in (("pp", made.split.pp), ("dp", made.split.dp)) if size > 1
    ]
    whole = "" if limits.is_chunked else ", prompts whole"
    return (
        f"{made.model.name}, {', '.join(split)}, on {made.gpu.name}, as {made.engine} counts: "
        f"max_model_len {made.max_model_len}, max_num_seqs {limits.max_num_seqs}, "
        f"max_num_batched_tokens {limits.max_num_batched_tokens}{whole}"
    )


def _memory(made: Plan, width: int) -> str:
    found = made.memory
    share = found.usable / made.gpu.memory_bytes
    rows = [
        (f"{share:.4g} of {made.gpu.memory_bytes / GIB:.2f} GiB", found.usable, ""),
        ("weights", -found.weights, ""),
        ("rotary table", -found.rotary, ""),
        ("activation peak", -found.run.peak, _peak(found.run)),
        ("runtime", -found.runtime, "context, kernels, workspaces: as measured"),
        ("communication", -found.communication, "as measured"),
        ("CUDA graphs", -found.graphs, "as vLLM estimates them"),
        ("KV cache", found.available, _blocks(made)),
    ]
    table = plain_table()
    for title in ("a GPU", "GiB", ""):
        table.add_column(title, justify="right" if title == "GiB" else "left")
    for name, size, note in rows:
        if size or name == "KV cache":
            table.add_row(name, f"{size / GIB:.2f}", note)
    return table_text(table, width)


def _blocks(made: Plan) -> str:
    found = made.memory
    null = ", one of them the null block" if made.engine.is_v1 else ""
    given = "" if made.asked.num_gpu_blocks_override is None else " (override)"
    return (
        f"{count(made.num_gpu_blocks)} blocks{given} of {found.block_size} tokens{null}; "
        f"{three(found.per_token / 1024)} KiB a token"
    )


def _peak(run: ProfileRun) -> str:
    if run.is_bound_by_sampling:
        return f"of sampling; the forward pass takes {run.forward / GIB:.2f}"
    return f"of the forward pass; sampling takes {run.sampling / GIB:.2f}"


def _requests(made: Plan, width: int) -> str:
    table = plain_table()
    table.add_column("tokens of a request")
    for length in made.lengths:
        table.add_column(count(length), justify="right")
    table.add_row("at once", *(f"{made.concurrency(length):.2f}" for length in made.lengths))
    return table_text(table, width)


def _changes(others: list[Change], made: Plan, width: int) -> str:
    table = plain_table(collapse_padding=True)
    titles = ("flag", "from", "to", "blocks", "change", "at once", "starts")
    for i, title in enumerate(titles):
        table.add_column(title, justify="right" if i > 2 else "left", no_wrap=True)
    for other in others:
        table.add_row(other.flag, other.before, other.after, *_outcome(other.plan, made))
    return table_text(table, width)


def _outcome(found: Plan | None, made: Plan) -> tuple[str, str, str, str]:
    """Blocks, how many more, requests of max_model_len at once, and whether it starts."""
    if found is None:
        return "-", "-", "-", "refused"
    return (
        count(found.num_gpu_blocks),
        f"{found.tokens / made.tokens - 1:+.1%}",
        f"{found.concurrency(found.max_model_len):.2f}",
        "yes" if found.starts else "no",
    )


def notes(made: Plan) -> list[str]:
    """What is easily missed."""
    found = []
    if made.split.dp > 1:
        found.append(f"each of the {made.split.dp} data-parallel ranks has so many blocks and requests")
    if made.model.window_layers:
        found.append(_windows(made))
    if not made.engine.is_v1 and made.asked.enable_chunked_prefill is None:
        found.append(_not_monotonic(made))
    return found


def _windows(made: Plan) -> str:
    model = made.model
    return (
        f"{model.window_layers} of {model.layers} layers need only the last {model.window} tokens of a "
        "request, which is counted in what fits at once; blocks are counted as if all layers shared them, "
        "but vLLM pools them by kind, and prints other numbers"
    )


def _not_monotonic(made: Plan) -> str:
    tried = ", ".join(f"{length}: {count(blocks)}" for length, blocks in by_length(made))
    return (
        f"the KV cache does not shrink steadily with max_model_len: up to {UNCHUNKED} tokens a prompt is one "
        f"step, and the profile run has max_model_len tokens; above, prompts are chunked. Blocks by "
        f"max_model_len: {tried}"
    )
