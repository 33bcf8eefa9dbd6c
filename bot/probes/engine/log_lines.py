"""Parses a vLLM log by its exact lines: why the engine did not start or died, and its start arguments.

Lines are searched, not matched: newer versions put a process name before them, and 0.10 and 0.11 colour it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bot.domain.kernel import redaction

OomClass = Literal[
    "none",
    "weights",
    "warm_up",
    "start_up",
    "serving",
    "other_tenant",
    "no_kv_room",
    "model_len",
    "too_many_seqs",
    "host_memory",
    "bad_flag",
    "bad_config",
    "device",
    "engine_died",
    "start_failed",
    "probe",
    "killed",
]
"""Why an engine ended, each with its own cure. Out of memory are the first ones after `none`, and they differ:

weights, warm_up, start_up, serving: CUDA or HIP is out of memory, at that moment. other_tenant: another process holds
the memory. no_kv_room, model_len: too little is left for the KV cache, so memory for it must go up, not down.
too_many_seqs: a hybrid model has a state block for fewer sequences than --max-num-seqs. host_memory: the host's memory
or /dev/shm is too small. device: the GPU or its link is faulty.
No log line alone shows these two. probe: the kubelet ended it because its liveness or startup probe failed, according
to an event of its pod. killed: a signal ended it from outside, and no event names the sender.
"""
CUDA_OOM: frozenset[OomClass] = frozenset({"weights", "warm_up", "start_up", "serving"})

MAX_LINE_LENGTH = 400
ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = r"(?:\([^)\n]+\) )*"
_LEVEL = rf"{_PROCESS}(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
_REQUEST = re.compile(
    # Without the parameters that follow a prompt, the prompt goes on, up to the next message.
    rf"(Received request )(?:\S+: prompt: (?:(?!.*params\w*: ).*\n(?!{_LEVEL}))*)?.*"
)
"""Written at INFO; up to vLLM 0.9 with the user's prompt, which may quote any line of a log."""
_INFO = re.compile(rf"^{_PROCESS}(?:DEBUG|INFO)\b.*", re.MULTILINE)
"""No cause is written at these levels, but prompts and answers are."""
_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError: (?:CUDA|HIP) out of memory|(?:CUDA|HIP) out of memory\. Tried to allocate ([\d.]+ [KMG]iB)"
    # The driver's own words, when it is not PyTorch that allocates: for a graph, or for NCCL's buffers.
    r"|(?:CUDA|HIP) error: out of memory|Cuda failure (?:\d+ )?'out of memory'"
)
_SERVES = re.compile(r'Application startup complete|Received request |"POST /v1/|Running: \d+ reqs')
"""The first is often above the lines that are read."""
# From the most exact line to the vaguest: the last two follow nearly all others.
_CLASSES: tuple[tuple[OomClass, re.Pattern[str]], ...] = (
    (
        "bad_flag",
        re.compile(
            r"error: (?:unrecognized arguments: .|argument [^:\n]+: .|ambiguous option: .|Invalid [^\n]* for --\w)"
        ),
    ),
    ("bad_config", re.compile(r"ValidationError: \d+ validation errors? for \w+Config")),
    (
        "other_tenant",
        re.compile(
            r"Free memory on device .*on startup is less than (?:desired GPU memory utilization|the engine's budget)"
            # Another process gave memory back while this one measured how much there is.
            r"|Error in memory profiling\. Initial free memory"
        ),
    ),
    ("weights", re.compile(r"Failed to load model - not enough GPU memory")),
    ("warm_up", re.compile(r"CUDA out of memory occurred when warming up (?:sampler|pooler)")),
    (
        "no_kv_room",
        re.compile(r"No available memory for the cache blocks|Cannot auto-fit max_model_len: not enough GPU memory"),
    ),
    ("too_many_seqs", re.compile(r"max_num_seqs \(\d+\) exceeds available Mamba cache blocks")),
    (
        "model_len",
        re.compile(
            r"To serve at least one request with the models?'?s? max seq len \(\d+\)"
            r"|The model's max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV"
        ),
    ),
    (
        "host_memory",
        re.compile(
            r"DefaultCPUAllocator: (?:can't|not enough)|Error while creating shared memory segment"
            r"|Insufficient space in /dev/shm"
        ),
    ),
    ("device", re.compile(r"uncorrectable (?:ECC|NVLink) error|GPU is lost|GPU has fallen off the bus")),
)
_ENGINE_DIED = re.compile(
    r"EngineCore encountered a fatal error|EngineDeadError|EngineCore encountered an issue"
    # A killed engine leaves only this line. The lines after it refer to a stack trace that the log does not have.
    r"|engine core exited unexpectedly"
    r"|Engine core proc(?:ess)? \S+ died unexpectedly|Worker ?[Pp]roc \S+ died unexpectedly|Engine loop is not running"
    r"|Process \S+ \(PID: \d+\) died with exit code"
)
_HEAD = re.compile(r"^\([\w=-]+ pid=\d+\) (?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^]]+\] *)?")
"""Which process wrote it, when, and where in the source: not for the sentence that quotes it."""
_STOP_REQUESTED = re.compile(r"\[shutdown\] API server: shutdown triggered")
_START_FAILED = re.compile(
    r"EngineCore failed to start|Engine core initialization failed|failed during engine core initialization"
)
_BEGINS_TO_DIE = re.compile(
    r"WorkerProc (?:failed|hit an exception)|" + _START_FAILED.pattern + "|" + _ENGINE_DIED.pattern
)
_EXCEPTION = re.compile(
    rf"^{_PROCESS}(?:[A-Z]+ [\d-]+ [\d:.]+ \[[^]\n]+\] )?(?:\[rank\d+\]: )?"
    r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .",
    re.MULTILINE,
)
"""The last line of a traceback."""
_REFERS = re.compile(r"[Ss]ee (?:root cause|stack trace)|stack trace above|EngineCore encountered|: cancelled")
"""An exception that another one raised in its place, and that only says so."""
_COLLECTIVE = re.compile(r"NCCL|RCCL|custom_all_reduce|all_?reduce", re.IGNORECASE)
_FITS = re.compile(
    r"estimated maximum model length is (\d+)|maximum number of tokens that can be stored in KV cache \((\d+)\)"
)
_EVIDENCE = re.compile(
    r"out of memory|OutOfMemory|oom|memory|CUDA|HIP |NCCL|EngineDead|fatal|(?:died|exited) unexpectedly|failed to start"
    r"|initialization failed|unrecognized arguments|invalid choice|validation error"
    r"|(?:Runtime|Value|Timeout|OS|Import|ModuleNotFound|Assertion)Error",
    re.IGNORECASE,
)
_NO_EVIDENCE = re.compile(r" INFO |Found ulimit|CUDAGraphs|NUMA binding|\bDumping |resource_tracker")
"""Warnings of each start and end, and what a dying engine writes of its configuration and requests."""

_FITS_SEQS = re.compile(r"exceeds available Mamba cache blocks \((\d+)\)")
_VERSION = re.compile(r"Initializing a (V[01]) LLM engine \(v([\w.+]+)\)")
_NO_RELEASE = re.compile(r"0\.1\.dev|\D")
"""How the version of a build from a clone without tags begins, which is how forks and shallow clones are built."""
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_KV_GIB = re.compile(r"Available KV cache memory: (-?[\d.]+) GiB")
_BACKEND = re.compile(
    r"Using (Flash Attention|Flash[Ii]nfer|XFormers|Torch SDPA|\w+) (?:attention )?backend"
    r"(?: on V1 engine\.|\.| out of potential backends| \(selected via)"
)
_NON_DEFAULT = re.compile(r"non-default args: (\{.*\})")
_DEVICE = re.compile(r"device_config=(\w+)")
_PREFIX_CACHING = re.compile(r"Initializing a V[01] LLM engine .*\benable_prefix_caching=(True|False)")
_PLAIN_ARGUMENT = re.compile(r"'(\w+)': ('[^']*'|-?[\d.]+|True|False|None)[,}]")


@dataclass(frozen=True)
class StartLines:
    """What an engine logged as it started; None if the line is not in the log (any more)."""

    version: str | None = None
    generation: str | None = None
    """`V0` or `V1`, from the engine's log."""
    kv_tokens: float | None = None
    kv_gib: float | None = None
    """Memory for the KV cache on one GPU."""
    backend: str | None = None
    device: str | None = None
    """`cuda` or `cpu`, from the engine's log."""
    prefix_caching: bool | None = None
    """Whether it is on: some versions leave it off for hybrid models, whatever the default."""
    arguments: dict[str, object] | None = None
    """The arguments that differ from the defaults; None if the line was not found."""


@dataclass(frozen=True)
class LastWords:
    why: OomClass
    line: str = ""
    """The message that decided."""
    evidence: tuple[str, ...] = field(default=())
    """At most 50 lines about memory, devices and death, redacted."""
    stop_requested: bool = False
    """It got a signal to stop; only the pod shows whether it was meant to end."""
    collective: bool = False
    """One of those is about ranks that talk to each other."""
    fits_tokens: float | None = None
    """The longest request that would fit the KV pool, according to the engine."""
    fits_seqs: float | None = None
    """How many sequences the engine has room for, according to itself."""
    uncaught: str = ""
    """If `why` is none: the last exception, with nothing served after it. Only an exit code shows that it ended the
    process."""


def plain(text: str) -> str:
    return ANSI.sub("", text)


def start_lines(log: str) -> StartLines:
    log = plain(log)
    version, tokens, backend = _VERSION.search(log), _KV_TOKENS.search(log), _BACKEND.search(log)
    gib, device, prefix_caching = _KV_GIB.search(log), _DEVICE.search(log), _PREFIX_CACHING.search(log)
    return StartLines(
        version=version[2] if version and not _NO_RELEASE.match(version[2]) else None,
        generation=version[1] if version else None,
        kv_tokens=float(tokens[1].replace(",", "")) if tokens else None,
        kv_gib=float(gib[1]) if gib else None,
        backend=backend[1] if backend else None,
        device=device[1] if device else None,
        prefix_caching=prefix_caching[1] == "True" if prefix_caching else None,
        arguments=_arguments(log),
    )


def _arguments(log: str) -> dict[str, object] | None:
    found = _NON_DEFAULT.search(log)
    if found is None:
        return None
    try:
        written = ast.literal_eval(found[1])
    except (ValueError, SyntaxError):
        # Some values print as objects; the plain ones beside them can still be read.
        return {name: ast.literal_eval(value) for name, value in _PLAIN_ARGUMENT.findall(found[1])}
    return dict(written) if isinstance(written, dict) else None


def last_words(log: str) -> LastWords:
    """Why the engine of this log ended, by the most exact line in it; `none` if no line shows that it ended.

    What users ask, and what the engine answers, is not evidence and is not kept.
    """
    log = _REQUEST.sub(r"\1", plain(log))
    # As long as the log, so that a place in one is a place in the other.
    troubles = _INFO.sub(lambda line: " " * len(line[0]), log)
    evidence = tuple(_evidence(troubles))[-50:]
    why, found = _cause(troubles, log)
    fits, fits_seqs = _FITS.search(troubles), _FITS_SEQS.search(troubles)
    return LastWords(
        why,
        redacted(_line_of(log, found)) if found else "",
        evidence,
        stop_requested=_STOP_REQUESTED.search(log) is not None,
        collective=any(_COLLECTIVE.search(line) for line in evidence),
        fits_tokens=float(fits[1] or fits[2]) if fits else None,
        fits_seqs=float(fits_seqs[1]) if fits_seqs else None,
        uncaught=redacted(_uncaught(troubles, log)) if why == "none" else "",
    )


def _evidence(log: str) -> Iterable[str]:
    """Each message once, where it came first: a death is logged again for each stream that it cuts."""
    messages: dict[str, str] = {}
    for line in log.splitlines():
        if _EVIDENCE.search(line) and not _NO_EVIDENCE.search(line):
            messages.setdefault(line.partition("] ")[2] or line, redacted(line))
    return messages.values()


def _cause(troubles: str, log: str) -> tuple[OomClass, re.Match[str] | None]:
    """`troubles`: the log without its lines at INFO, which still show whether it served or was asked to stop."""
    for why, pattern in _CLASSES:
        if found := pattern.search(troubles):
            return why, found
    if found := _OUT_OF_MEMORY.search(troubles):
        return "serving" if _SERVES.search(log, 0, found.start()) else "start_up", found
    if found := _START_FAILED.search(troubles):
        return "start_failed", _exception_of(troubles) or found
    # An engine that was asked to stop logs the same errors as one that died.
    stop_requested = _STOP_REQUESTED.search(log)
    if found := _ENGINE_DIED.search(troubles, 0, stop_requested.start() if stop_requested else len(log)):
        return "engine_died", _exception_of(troubles) or found
    return "none", None


def _exception_of(troubles: str) -> re.Match[str] | None:
    """The first exception since it began to die: those after it say that it died, or are cut streams."""
    began = _BEGINS_TO_DIE.search(troubles)
    exceptions = _EXCEPTION.finditer(troubles, began.start() if began else 0)
    return next((found for found in exceptions if not _REFERS.search(_line_of(troubles, found))), None)


def _uncaught(troubles: str, log: str) -> str:
    *_, last = (None, *_EXCEPTION.finditer(troubles))
    return _line_of(log, last) if last and not _SERVES.search(log, last.end()) else ""


def _line_of(log: str, found: re.Match[str]) -> str:
    start = log.rfind("\n", 0, found.start()) + 1
    end = log.find("\n", found.start())
    return _shortened(_HEAD.sub("", log[start : end if end >= 0 else len(log)]))


def redacted(line: str) -> str:
    """A log line without likely secrets, at most 400 characters."""
    return _shortened(redaction.redacted(line))


def _shortened(line: str) -> str:
    return line if len(line) <= MAX_LINE_LENGTH else line[: MAX_LINE_LENGTH - 1] + "…"
