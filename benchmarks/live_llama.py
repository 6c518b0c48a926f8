"""llama.cpp's server in this process: a burst for each line that is read, its seconds for an answer.

    python benchmarks/live_llama.py FILE.gguf THREADS

A line is a list of (prompt ids, tokens of output).  Needs xllamacpp and nothing of ours.
"""

from __future__ import annotations

import ast
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import xllamacpp

NUM_SLOTS = 16
CONTEXT = 512  # tokens of a slot


def main(gguf: str, threads: int) -> None:
    server = started(gguf, threads)
    for line in sys.stdin:
        asks = ast.literal_eval(line)
        wall, cpu = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(len(asks)) as clients:
            for answer in clients.map(lambda ask: complete(server.listening_address, *ask), asks):
                assert answer["tokens_predicted"] > 0, answer
        print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


def started(gguf: str, threads: int) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_parallel = NUM_SLOTS
    params.n_ctx = NUM_SLOTS * CONTEXT
    params.kv_unified = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_prompt = False
    params.port = 0
    return xllamacpp.Server(params)


def complete(address: str, prompt: list[int], output: int) -> dict[str, object]:
    body = {
        "prompt": prompt,
        "n_predict": output,
        "ignore_eos": True,
        "temperature": 0,
        "cache_prompt": False,
    }
    request = Request(
        f"{address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=3600) as reply:
        answer: dict[str, object] = json.load(reply)
    return answer


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
