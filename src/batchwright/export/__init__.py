"""What other tools read: traces, results, pictures and commands.

    mooncake      the load as a Mooncake trace            from a Workload
    vllm_bench    a run under `vllm bench serve` keys     from a Run
    perfetto      a run as a Chrome trace                 from a Run
    replay        the commands that replay the load       from a Workload

Each makes an `Exported` in memory; `files.write_whole` writes it.  A new format
is one file, and one line here.
"""

from batchwright.export.exported import Exported
from batchwright.export.mooncake import mooncake_trace
from batchwright.export.perfetto import perfetto_trace
from batchwright.export.replay import replay_script, replay_trace
from batchwright.export.vllm_bench import vllm_bench_result

__all__ = [
    "Exported",
    "mooncake_trace",
    "perfetto_trace",
    "replay_script",
    "replay_trace",
    "vllm_bench_result",
]
