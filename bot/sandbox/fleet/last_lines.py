"""What a vLLM 0.32 server logs as it ends: by a dead engine, or by SIGTERM. In the order of real logs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bot.sandbox.fleet.startup import LogLine, api, core

ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_RAISED = f"vllm.v1.engine.exceptions.EngineDeadError: {ENGINE_DEAD}"
_DUMPED = (
    (72, "Dumping input data for V1 LLM engine (v0.32.0) with config: model='tiny-llama', speculative_config=None"),
    (79, "Dumping scheduler output for model execution: SchedulerOutput(scheduled_new_reqs=[], scheduled_cached_reqs="),
    (81, "Dumping scheduler stats: SchedulerStats(num_running_reqs={streams}, num_waiting_reqs=0)"),
)
"""Before the stack trace of a failed step. A real engine writes its whole configuration and all of its requests."""
_RAISED_IN_A_STEP: dict[str, str] = {
    "engine_dead": "RuntimeError: Worker failed with error 'unspecified launch failure'",
    "cuda_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.19 GiB. GPU 0 has a total capacity of "
    "79.11 GiB of which 1.05 GiB is free. Including non-PyTorch memory, this process has 78.04 GiB memory in use.",
    "worker_killed": "RuntimeError: cancelled",
}
SITE = "/usr/local/lib/python3.12/dist-packages/vllm"
_READING = (
    f'  File "{SITE}/v1/engine/async_llm.py", line 849, in output_handler',
    "    outputs = await engine_core.get_output_async()",
    "              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    f'  File "{SITE}/v1/engine/core_client.py", line 1235, in get_output_async',
    "    raise self._format_exception(outputs) from None",
)
_WAITING = (
    f'  File "{SITE}/entrypoints/openai/completion/serving.py", line 306, in completion_stream_generator',
    "    async for prompt_idx, res in result_generator:",
    f'  File "{SITE}/utils/async_utils.py", line 104, in merge_async_iterators',
    "    async for item in iterator:  # type: ignore[union-attr]",
    f'  File "{SITE}/v1/engine/async_llm.py", line 767, in generate',
    "    out = q.get_nowait() or await q.get()",
    "                            ^^^^^^^^^^^^^",
    f'  File "{SITE}/v1/engine/output_processor.py", line 92, in get',
    "    raise output",
)


def of_a_death(cause: str, streams: int) -> Iterator[LogLine]:
    """All streams in flight raise one exception, one after the other, and each adds its frames to the traceback.

    So the last lines of a death under load show no cause: 20 streams write 2,100 lines.
    """
    if cause in _RAISED_IN_A_STEP:
        yield from _of_a_failed_step(cause, streams)
    else:  # killed: it had no time to log anything
        what = "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"
        yield api("core_client.py:817", what, "WARNING")
        yield from _client_stops("default")
    yield from _traceback("async_llm.py:906", "AsyncLLM output_handler failed.", _READING)
    for before in range(streams):
        frames = _WAITING * (before + 1) + _READING
        yield from _traceback("serving.py:500", "Error in completion stream generator.", frames)


def _of_a_failed_step(cause: str, streams: int) -> Iterator[LogLine]:
    if cause == "worker_killed":
        died = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."
        yield core("multiproc_executor.py:315", died, "ERROR")
        yield core("multiproc_executor.py:479", "[shutdown] Executor: waiting for worker exit count=0")
        yield core("multiproc_executor.py:486", "[shutdown] Executor: all workers exited gracefully")
    for line, what in _DUMPED:
        yield core(f"dump_input.py:{line}", what.format(streams=streams), "ERROR")
    for what in (
        "EngineCore encountered a fatal error.",
        "Traceback (most recent call last):",
        _RAISED_IN_A_STEP[cause],
    ):
        yield core("core.py:1512", what, "ERROR")


def after_a_death(cause: str, timeout_seconds: float) -> Iterator[LogLine]:
    """After its HTTP server has finished: an engine that reported its failed step to it is stopped last."""
    if cause in _RAISED_IN_A_STEP:
        yield from _client_stops(f"{timeout_seconds:g}s")


def of_sigterm(timeout_seconds: float, in_flight: int) -> Iterator[LogLine]:
    """Up to the requests in flight, which are drained or cut."""
    is_drain = timeout_seconds > 0
    mode = f"mode={'drain' if is_drain else 'abort'} timeout={timeout_seconds:g}s"
    yield api("launcher.py:254", "[shutdown] API server: shutdown triggered")
    yield api("launcher.py:270", f"[shutdown] API server: stopping engine client {mode}")
    yield from _client_stops(f"{timeout_seconds:g}s", until=2)
    yield api("utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")
    yield core("core.py:1454", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    yield core("core.py:1635", f"[shutdown] EngineCore: start {mode}")
    if in_flight and is_drain:
        draining = f"[shutdown] EngineCore: draining in-flight requests count={in_flight} timeout={timeout_seconds:g}s"
        yield core("core.py:1655", draining)
    elif in_flight:
        yield core("core.py:1645", f"[shutdown] EngineCore: aborting in-flight requests count={in_flight}")


def after_the_requests() -> Iterator[LogLine]:
    yield core("core.py:1666", "[shutdown] EngineCore: request processing complete; starting resource teardown")
    yield core("core.py:1499", "[shutdown] EngineCore: exiting busy loop")
    yield from _client_stops("", since=2)
    yield api("launcher.py:279", "[shutdown] API server: engine client stopped")
    yield api("launcher.py:282", "[shutdown] API server: signalling HTTP server shutdown")
    yield api("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")


FAREWELL = tuple(
    f"INFO:     {line}"
    for line in (
        "Shutting down",
        "Waiting for application shutdown.",
        "Application shutdown complete.",
    )
)
"""Of the HTTP server, without a time."""
FINISHED = "INFO:     Finished server process [1]"
"""Only when it ends by itself: uvicorn raises the signal again that has stopped it."""


def _client_stops(timeout: str, *, since: int = 0, until: int = 5) -> Iterator[LogLine]:
    lines = (
        (770, f"start timeout={timeout}"),
        (772, "stopping engine manager"),
        (774, "engine manager stopped"),
        (775, "cleaning up background resources"),
        (777, "complete"),
    )
    for number, what in lines[since:until]:
        yield api(f"core_client.py:{number}", f"[shutdown] MPClient: {what}")


def _traceback(where: str, what: str, frames: tuple[str, ...]) -> Iterator[LogLine]:
    for line in (what, "Traceback (most recent call last):", *frames, _RAISED):
        yield api(where, line, "ERROR")
