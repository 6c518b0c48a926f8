"""`batchwright policies` shows every policy, and what it leaves out."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest

from batchwright.cli.app import run
from batchwright.cli.policies import about
from batchwright.cluster import CLUSTERS
from batchwright.errors import InputError
from batchwright.policies import POLICIES

pytestmark = pytest.mark.pure

KNOWN: dict[str, type] = {**POLICIES, **CLUSTERS}


@pytest.mark.parametrize("name", KNOWN)
def test_every_policy_says_what_it_is(name: str) -> None:
    said = asdict(about(KNOWN[name]))
    assert all(words and words == words.strip() and "\n" not in words for words in said.values())


def test_the_table_has_every_policy_and_every_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "4000")
    run(["policies"])
    lines = capsys.readouterr().out.splitlines()
    for name, kind in KNOWN.items():
        rows = [line for line in lines if line.split()[:1] == [name]]
        assert len(rows) == 2
        if f"as {next(known for known in KNOWN if KNOWN[known] is kind)}" in rows[0]:
            continue
        assert about(kind).kv in rows[0] and about(kind).source.split()[0] in rows[1]
    text = "".join(lines)
    assert all(f"{field.name}=" in text for kind in KNOWN.values() for field in fields(kind))


def test_one_policy_alone_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run(["policies", "vllm", "static", "--json"])
    found = json.loads(capsys.readouterr().out)["policies"]
    assert list(found) == ["vllm", "static"]
    assert found["vllm"]["flags"]["async_scheduling"] is True
    assert found["static"]["victim"] == "nobody"


def test_several_servers_have_the_text_of_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    run(["policies", "--json"])
    found = json.loads(capsys.readouterr().out)["policies"]
    assert list(found) == list(KNOWN)
    assert found["replicas"]["flags"]["policy"] == "vllm"
    assert found["replicas"]["flags"]["router"] == "round_robin"
    assert found["distserve"]["flags"]["preemption_mode"] == "swap"


def test_an_unknown_policy_is_one_line() -> None:
    with pytest.raises(InputError, match=r"unknown policy 'vlm'.*vllm"):
        run(["policies", "vlm"])
