"""Rules of admission: static and dynamic batching in a scheduler that does the rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from batchwright.cost import Constant, Linear
from batchwright.engines.vllm import versions
from batchwright.engines.vllm.versions import SUPPORTED, check_version
from batchwright.errors import BatchwrightError, InputError, LimitError, PolicyError
from batchwright.limits import Limits
from batchwright.policies import Dynamic, Static, Vllm
from batchwright.policies.admission import CappedVllm, DynamicAdmission, Rule, StaticAdmission, View
from batchwright.request import Request
from batchwright.simulator import Simulator
from strategies import for_every_seed, limits_of, requests_of, timed_workload

SYNCHRONOUS = Vllm(async_scheduling=False)
ROOMY = Limits(max_num_seqs=64, max_num_batched_tokens=1 << 20)


@dataclass(frozen=True)
class Own:
    """A rule of one's own."""

    rule: Rule

    def begin(self, max_num_seqs: int) -> Rule:
        return self.rule


def load(seed: int, count: int) -> list[Request]:
    random, arrival, found = Random(seed), 0.0, []
    gap = random.choice([0.0, 0.01, 0.5, 3.0])
    for i in range(count):
        found.append(Request(i, arrival, random.randint(1, 300), random.randint(1, 60)))
        arrival += random.choice([0.0, gap, 2 * gap])
    return found


def served(policy: object, requests: list[Request], limits: Limits = ROOMY) -> list[tuple[float, float]]:
    """First token and end of each request."""
    Simulator(policy, Linear(0.02, prefill=1e-5), limits, audit=True).run(requests)  # type: ignore[arg-type]
    return [(r.first_token, r.finished) for r in requests]


# --- where tokens and KV are plenty, the rules are the policies ------------------------------


@for_every_seed(60)
def test_dynamic_admission_is_dynamic_batching(seed: int) -> None:
    random = Random(seed)
    size, window = random.randint(1, 12), random.choice([0.0, 0.1, 2.0])
    preferred = tuple(p for p in (2, 5, 8) if p <= size and random.random() < 0.5)
    ours = served(CappedVllm(DynamicAdmission(size, window, preferred), SYNCHRONOUS), load(seed, 50))
    assert ours == served(Dynamic(size, window, preferred), load(seed, 50))


@for_every_seed(60)
def test_static_admission_is_static_batching_of_full_batches(seed: int) -> None:
    size = Random(seed).randint(1, 12)
    ours = served(CappedVllm(StaticAdmission(size, idle=1e6), SYNCHRONOUS), load(seed, 4 * size))
    assert ours == served(Static(size, padded=False, streamed=True), load(seed, 4 * size))


def test_a_short_batch_starts_when_nobody_has_come_for_a_while() -> None:
    requests = [Request(i, float(at), 10, 5) for i, at in enumerate((0, 2, 4))]
    served(CappedVllm(StaticAdmission(4, idle=2.5), SYNCHRONOUS), requests)
    assert all(6.5 < r.first_token < 6.6 for r in requests)


# --- a rule on a scheduler that runs short ---------------------------------------------------


def rules(random: Random, seats: int) -> StaticAdmission | DynamicAdmission | Own:
    size = random.randint(1, seats)
    return random.choice(
        [
            StaticAdmission(size, idle=random.choice([0.0, 3.0, 40.0])),
            DynamicAdmission(size, window=random.choice([0.0, 3.0, 40.0])),
            Own(lambda view: min(2, max(0, 5 - view.num_running))),
        ]
    )


@for_every_seed(150)
def test_a_capped_scheduler_keeps_the_contract_and_serves_everyone(seed: int) -> None:
    work = timed_workload(seed)
    config = work["config"]
    admission = rules(Random(seed), config["max_num_seqs"])
    policy = CappedVllm(admission, Vllm(async_scheduling=config["async_scheduling"], policy=config["policy"]))
    results = []
    for audit in (False, True):
        requests = requests_of(work)
        simulator = Simulator(policy, Constant(1 / 64), limits_of(config), audit=audit)
        simulator.run(requests)
        simulator.batch.check()
        assert simulator.batch.num_running == simulator.batch.num_waiting == 0
        results.append([(r.first_token, r.finished) for r in requests])
    assert results[0] == results[1]


@for_every_seed(60)
def test_a_cap_that_never_binds_is_no_cap(seed: int) -> None:
    work = timed_workload(seed)
    plain = Vllm(async_scheduling=work["config"]["async_scheduling"], policy=work["config"]["policy"])
    ends = []
    for policy in (plain, CappedVllm(Own(lambda view: view.num_waiting), plain)):
        requests = requests_of(work)
        Simulator(policy, Constant(1 / 64), limits_of(work["config"])).run(requests)
        ends.append([r.finished for r in requests])
    assert ends[0] == ends[1]


@for_every_seed(60)
def test_nobody_joins_a_batch_that_runs(seed: int) -> None:
    """Whoever the rule lets in, even if KV is short, and whoever is preempted: these and no one else."""
    work = timed_workload(seed, asynchronous=False)
    size = Random(seed).randint(1, 8)
    config = work["config"] | {"max_num_seqs": 8}
    asked: list[int] = []

    def rule(view: View) -> int:
        asked.append(view.num_running)
        return size if view.num_running == 0 else 0

    requests = requests_of(work)
    Simulator(CappedVllm(Own(rule), SYNCHRONOUS), Constant(1 / 64), limits_of(config)).run(requests)
    served_together = sorted((r.first_token, r.finished) for r in requests if r.finished > 0)
    overlapping = [
        sum(begin <= first < end for begin, end in served_together) for first, _ in served_together
    ]
    assert all(count <= size for count in overlapping)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [-1, 1.5, None, "2"])
def test_a_rule_that_answers_no_count_is_an_error(answer: object) -> None:
    policy = CappedVllm(Own(lambda view: answer), SYNCHRONOUS)  # type: ignore[arg-type, return-value]
    with pytest.raises(PolicyError, match="rule of admission"):
        Simulator(policy, Constant(1.0)).run([Request(0, 0.0, 5, 5)])


@pytest.mark.parametrize("made", [lambda: StaticAdmission(65), lambda: DynamicAdmission(65)])
def test_a_batch_that_has_no_seats_is_an_error(
    made: Callable[[], StaticAdmission | DynamicAdmission],
) -> None:
    with pytest.raises(LimitError, match="65 is over max_num_seqs 64"):
        Simulator(CappedVllm(made()), Constant(1.0), ROOMY)


@pytest.mark.parametrize(
    "made",
    [
        lambda: StaticAdmission(0),
        lambda: StaticAdmission(4, idle=-1),
        lambda: DynamicAdmission(4, window=float("nan")),
        lambda: DynamicAdmission(4, preferred_sizes=(8,)),
    ],
)
def test_a_setting_that_cannot_be_is_an_error(made: Callable[[], object]) -> None:
    with pytest.raises(BatchwrightError):
        made()


# --- inside vLLM, as far as that shows without it ---------------------------------------------


@pytest.mark.parametrize("found", ["0.31.0", "0.33.0rc1", "1.0", "0.3.2"])
def test_a_version_of_vllm_that_is_not_known_is_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda package: found)
    with pytest.raises(InputError, match=f"vLLM {found} is not supported .*{SUPPORTED[0]}"):
        check_version()


@pytest.mark.parametrize("found", ["0.32.0", "0.32.1", "0.32.0+cpu"])
def test_a_version_of_vllm_that_is_known_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda package: found)
    check_version()


def test_without_vllm_the_schedulers_and_the_recorder_say_so() -> None:
    if is_there():
        pytest.skip("vLLM is installed")
    code = "from batchwright.engines.vllm import Static"
    for command in (["-c", code], ["-m", "batchwright.engines.vllm.record", "nowhere"]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        assert done.returncode != 0 and "vLLM is not installed here" in done.stderr


def is_there() -> bool:
    try:
        versions.vllm_version()
    except InputError:
        return False
    return True
