"""A server's command line as keys of a scenario and the text of a policy.

    vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --no-async-scheduling

is `model`, `max_num_seqs` and the policy `vllm@0.32(async_scheduling=false)`.  Every flag is accounted for:
used here, not modelled (and why), of no matter to batching, or unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchwright.errors import BatchwrightError, InputError, nearest
from batchwright.hardware.engine import V1
from batchwright.policies import policy as policy_of
from batchwright.server_command.engine_rules import RULES, EngineRules
from batchwright.server_command.flags import Given, parse, table_of
from batchwright.server_command.sglang_chunk import sglang_chunk
from batchwright.server_command.values import Value, count
from batchwright.server_command.versions import ASYNC, KNOWN, nearest_version, release_of
from batchwright.server_command.words import Words, words_of

USED, APART, IDLE, UNKNOWN = "used", "not modelled", "of no matter to batching", "unknown"
_OLD: Final = "vllm_v0"


@dataclass(frozen=True)
class Use:
    """One flag as it is written.  `how`: one of the four words above.  `text`: our key, or why.

    `value`: as it is written; None of a switch, and of what is of no matter: it may be a secret.
    """

    flag: str
    value: str | None
    how: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ServerCommand:
    """What a command line says.

    engine   vllm, sglang, tgi or tensorrt_llm
    version  of it, where the command tells it
    title    engine and version as they are printed
    policy   text of the policy
    keys     of a scenario, by name
    uses     every flag
    notes    what was assumed
    """

    engine: str
    version: str | None
    title: str
    policy: str
    keys: Mapping[str, Value]
    uses: tuple[Use, ...]
    notes: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """What was understood, for the user."""
        yield f"--like is {self.title}, run as {self.policy}"
        used = [f"{use.flag} -> {use.text}" for use in self.uses if use.how == USED]
        if used:
            yield f"--like: {', '.join(used)}"
        for use in self.uses:
            if use.how in (APART, UNKNOWN):
                yield f"--like: {use.flag} is {use.how}{use.text}"
        idle = [use.flag for use in self.uses if use.how == IDLE]
        if idle:
            yield f"--like: {', '.join(idle)} {'are' if len(idle) > 1 else 'is'} {IDLE}"
        yield from self.notes

    def to_json(self) -> dict[str, Any]:
        flags = [vars(use) for use in self.uses]
        return {"engine": self.title, "policy": self.policy, "flags": flags, "notes": list(self.notes)}


def read(text: str, known: Collection[str], gpu: str | None = None) -> ServerCommand:
    """What a command line says.  `known`: keys that a scenario has; flags for others are not modelled.

    `gpu`: by name, where it is known, for the defaults of engines that look at its memory.
    Raises InputError on a line that starts no known server, a value that is none, or flags that the engine
    does not take together.
    """
    return _Reader(words_of(text), known, gpu).command()


class _Reader:
    def __init__(self, words: Words, known: Collection[str], gpu: str | None) -> None:
        self.gpu = gpu
        self.words = words
        self.known = known
        self.rules: EngineRules = RULES[words.engine]
        self.table = table_of(words.engine)
        self.keys: dict[str, Value] = {}
        self.flags: dict[str, Value] = {}
        self.uses: list[Use] = []
        self.notes: list[str] = []

    def command(self) -> ServerCommand:
        loose, given = parse(self.words.arguments, self.table)
        self.take_model(loose)
        for one in [*self.of_environment(), *given]:
            self.take(one)
        name = self.policy_name()
        self.settle()
        return ServerCommand(
            engine=self.words.engine,
            version=self.words.version,
            title=" ".join(filter(None, (self.rules.title, self.words.version))),
            policy=self.policy(name),
            keys=self.keys,
            uses=tuple(self.uses),
            notes=tuple(self.notes),
        )

    # --- flags ------------------------------------------------------------------

    def take_model(self, loose: list[str]) -> None:
        """The word of its own that names the model.  Raises InputError if there are several."""
        if len(loose) > 1:
            raise InputError(
                f"--like: {loose[1]!r} belongs to no flag, and the model is {loose[0]!r}; quote "
                "values with spaces"
            )
        if loose:
            self.keys["model"] = loose[0]
            self.uses.append(Use(loose[0], None, USED, "model"))

    def of_environment(self) -> Iterator[Given]:
        """Flags that variables set: TGI takes all of its flags that way."""
        if self.words.engine != "tgi":
            return
        for variable, value in self.words.environment.items():
            name = variable.lower().replace("_", "-")
            if name in self.table.names or name in self.rules.policy:
                yield Given(variable, name, value)

    def take(self, given: Given) -> None:
        """Account for one flag."""
        key = given.key
        if key == self.rules.model:
            self.set(self.keys, "model", given, given.value or "")
        elif key in self.rules.keys:
            self.take_key(given)
        elif key in self.rules.policy:
            name, reader = self.rules.policy[key]
            value = reader(given)
            self.set(self.flags, name, given, value)
            if key in self.rules.both:
                self.keys[self.rules.both[key]] = value
        elif key == "max-total-tokens" and self.words.engine == "sglang":
            self.set(self.keys, "num_gpu_blocks_override", given, count(given))  # in tokens until `settle`
        else:
            how, text = self.rest(given)
            self.uses.append(Use(given.written, None if how == IDLE else given.value, how, text))

    def take_key(self, given: Given) -> None:
        name, reader = self.rules.keys[given.key]
        if name not in self.known:
            why = self.table.not_modelled.get(given.key)
            self.uses.append(Use(given.written, given.value, APART, f" ({why})" if why else ""))
        elif name == "max_model_len" and given.value in ("auto", "-1"):
            text = "; give --max-model-len, or what the load needs is taken"
            self.uses.append(Use(given.written, given.value, APART, text))
        elif given.value == "auto":
            self.uses.append(Use(given.written, given.value, USED, "its default"))
        else:
            self.set(self.keys, name, given, reader(given))

    def set(self, where: dict[str, Value], name: str, given: Given, value: Value) -> None:
        where[name] = value
        shown = str(value).lower() if isinstance(value, bool) else value
        self.uses = [use for use in self.uses if not (use.how == USED and use.text.partition(" ")[0] == name)]
        self.uses.append(Use(given.written, given.value, USED, f"{name} {shown}"))

    def rest(self, given: Given) -> tuple[str, str]:
        """How a flag that is not used is accounted for."""
        if given.key in self.rules.files:
            return APART, f": the flags in {given.value} are not seen; paste them"
        if given.key in self.table.not_modelled:
            return APART, f" ({self.table.not_modelled[given.key]})"
        if given.key in self.table.names:
            return IDLE, ""
        return UNKNOWN, nearest(given.key, self.table.names) if _has_near(given.key, self.table.names) else ""

    # --- version and policy -----------------------------------------------------

    def policy_name(self) -> str:
        """The policy with its version.  Notes what is assumed."""
        engine, told = self.words.engine, self.words.version
        known = KNOWN[engine]
        if told is None:
            if not known:
                return engine
            self.notes.append(f"--like names no version of {self.rules.title}, so it is {known[0]}")
            return self.of_v0() or f"{engine}@{known[0]}"
        release = release_of(told)
        if engine == "vllm":
            found = self.of_v0(release)
            if found:
                return found
            if release < ASYNC:
                self.flags.setdefault("async_scheduling", False)
        version = nearest_version(engine, release)
        if version and release_of(version) != release and engine != "tgi":
            self.notes.append(
                f"--like is {self.rules.title} {told}; the nearest version that is known is {version}"
            )
        return f"{engine}@{version}" if version else engine

    def of_v0(self, release: tuple[int, int] = V1) -> str:
        """vLLM's first scheduler, where it is what runs; else empty."""
        if self.words.engine != "vllm":
            return ""
        asked = self.words.environment.get("VLLM_USE_V1")
        if asked == "0" or (release < V1 and asked != "1"):
            return self.first_scheduler()
        return ""

    def first_scheduler(self) -> str:
        chunked = self.flags.pop("enable_chunked_prefill", False)
        dropped = sorted(self.flags)
        self.flags.clear()
        if dropped:
            self.notes.append(
                f"--like: {', '.join(dropped)} {'are' if len(dropped) > 1 else 'is'} not modelled in V0"
            )
        if not chunked:
            return _OLD
        self.notes.append("--like: V0 with chunked prefill is run as sarathi, which has its rules")
        return "sarathi"

    def settle(self) -> None:
        """What the engine does with flags together, and its own defaults."""
        for key, (value, why) in self.rules.defaults.items():
            if key not in self.keys:
                self.keys[key] = value
                self.notes.append(f"--like: {key} is {value}, {why}")
        if self.words.engine == "sglang":
            self.settle_sglang()
        if (
            "num_gpu_blocks_override" in self.keys
            and self.keys.pop("gpu_memory_utilization", None) is not None
        ):
            self.notes.append("--like: num_gpu_blocks_override replaces gpu_memory_utilization")

    def settle_sglang(self) -> None:
        """Chunks by the memory of the GPU, and blocks from tokens."""
        tokens = self.keys.get("num_gpu_blocks_override")
        if tokens is not None:
            self.keys["num_gpu_blocks_override"] = int(tokens) // int(self.keys["block_size"]) + 1
        chunk = None if self.gpu is None else sglang_chunk(self.gpu)
        if chunk is not None and "chunked_prefill_size" not in self.flags:
            self.flags["chunked_prefill_size"] = chunk
            self.notes.append(f"--like: chunked_prefill_size is {chunk}, SGLang's default on {self.gpu}")

    def policy(self, name: str) -> str:
        """Its text, without flags at their defaults.  Raises InputError on flags that the policy refuses."""
        try:
            usual = vars(policy_of(name))
            flags = {flag: value for flag, value in self.flags.items() if usual[flag] != value}
            parts = ", ".join(f"{flag}={_shown(value)}" for flag, value in flags.items())
            text = f"{name}({parts})" if parts else name
            policy_of(text)
        except BatchwrightError as error:
            raise InputError(f"--like: {error}") from None
        return text


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _has_near(name: str, names: Collection[str]) -> bool:
    return "did you mean" in nearest(name, names)
