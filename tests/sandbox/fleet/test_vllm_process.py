"""A real process in a container of the fleet: its command, log, exit code, streams and faults.

vLLM itself is too large for most machines, so a small program that behaves like it is started here; the tests of
`tests/end_to_end/test_real_engines.py` run vLLM.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.cluster.pod_state import is_loading
from bot.sandbox.fleet.addresses import Addresses
from bot.sandbox.fleet.container_log import ContainerLog, LogQuery
from bot.sandbox.fleet.engine import Sequence
from bot.sandbox.fleet.engines import START_AGAIN, Fault
from bot.sandbox.fleet.pod_spec import PodSpec
from bot.sandbox.fleet.tiny_model import write_tiny_model
from bot.sandbox.fleet.vllm_process import SERVING_NICE, VllmEngines, VllmProcess
from tests.sandbox.fleet.calibration.cases import spec_of
from tests.sandbox.fleet.living_world import demo_world, eventually

PROGRAM = """#!{python}
import ctypes, http.server, json, os, signal, sys, threading, time

flags = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
print("argv:", sys.argv[1:], flush=True)
print("cuda visible:", os.environ.get("FROM_THE_POD"), "secret:", os.environ.get("INCIDENT_BOT_SECRET"), flush=True)
if "swap-space" in flags:
    print("vllm: error: unrecognized arguments: --swap-space=4", flush=True)
    sys.exit(2)

if flags.get("num-gpu-blocks-override") == "32":
    time.sleep(1)  # so that others see it while it starts

core = os.fork()
if core == 0:
    ctypes.CDLL(None).prctl(15, b"VLLM::EngineCore", 0, 0, 0)
    while True:
        time.sleep(60)


def ends(signum, frame):
    print("[shutdown] API server: shutdown triggered", flush=True)
    os.kill(core, signal.SIGKILL)
    os._exit(0)


def watch():
    os.waitpid(core, 0)
    print("EngineDeadError: EngineCore encountered an issue.", flush=True)
    os._exit(0)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, b"# TYPE vllm:num_requests_running gauge\\nvllm:num_requests_running 3.0\\n")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        os.write(1, f"prompt: {{len(asked['prompt'])}} eos: {{asked['ignore_eos']}}\\n".encode())
        if asked["max_tokens"] == 1:
            return self.answer(503, b"full")
        if asked["max_tokens"] == 2:
            return self.answer(200, b"data: [DONE]\\n\\n")
        if asked["max_tokens"] == 3:
            self.answer(200, b'data: {{"choices": [{{"finish_reason": null}}]}}\\n\\n')
            time.sleep(60)
        self.answer(200, b'data: {{"choices": [{{"finish_reason": "length"}}]}}\\n\\ndata: [DONE]\\n\\n')


signal.signal(signal.SIGTERM, ends)
threading.Thread(target=watch, daemon=True).start()
server = http.server.ThreadingHTTPServer((flags["host"], int(flags["port"])), Handler)
server.serve_forever()
"""
NO_FAULT = Fault()
FLAGS = ("--num-gpu-blocks-override=128", "--shutdown-timeout=20")


class Started:
    """An engine with its log."""

    def __init__(self, engines: VllmEngines, address: str, port: int) -> None:
        self.engines, self.address, self.port = engines, address, port
        self.log = ContainerLog()

    async def start(self, *flags: str, fault: Fault = NO_FAULT, spec: PodSpec | None = None) -> VllmProcess | int:
        wanted = spec or spec_of("llm-1", flags or FLAGS, self.port)
        return await self.engines.start(wanted, self.address, self.log, fault)

    async def engine(self, *flags: str, fault: Fault = NO_FAULT) -> VllmProcess:
        started = await self.start(*flags, fault=fault)
        assert isinstance(started, VllmProcess), self.output()
        return started

    def output(self) -> str:
        return self.log.read(LogQuery())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "vllm"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
async def box(program: Path, unused_tcp_port: int) -> AsyncIterator[Started]:
    engines, addresses = VllmEngines(program), Addresses()
    yield Started(engines, addresses.next_pod(), unused_tcp_port)
    await engines.close()
    addresses.close()


def autogroup_of(pid: int) -> str:
    return Path(f"/proc/{pid}/autogroup").read_text()


async def ended(engine: VllmProcess, *streams: Sequence | str) -> list[str | None]:
    waiting = {one for one in streams if isinstance(one, Sequence)}
    async with asyncio.timeout(30):
        while waiting:
            waiting -= set(engine.take_ended())
            await asyncio.sleep(0.01)
    return [one.finished_reason for one in streams if isinstance(one, Sequence)]


async def test_a_containers_own_command_runs_with_what_a_cpu_needs(
    box: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INCIDENT_BOT_SECRET", "hunter2")
    spec = replace(spec_of("llm-1", FLAGS, box.port), env={"FROM_THE_POD": "yes"})
    started = await box.start(spec=spec)
    assert isinstance(started, VllmProcess)
    await started.close()
    argv = json.loads(box.output().splitlines()[0].removeprefix("argv: ").replace("'", '"'))
    assert argv[:3] == ["serve", "tiny-llama", "--max-num-batched-tokens=8192"]
    assert argv[3:8] == ["--served-model-name=tiny-llama", "--max-model-len=2048", "--block-size=32", *FLAGS]
    assert argv[8:] == [
        *("--load-format=dummy", "--enforce-eager", "--stream-interval=32"),
        *(f"--host={box.address}", f"--port={box.port}"),
    ]
    assert "cuda visible: yes secret: None" in box.output()


async def test_a_shell_script_that_starts_vllm_gets_it_too(box: Started) -> None:
    spec = replace(spec_of("llm-1", (), box.port), argv=("sh", "-c", "exec vllm serve tiny-llama --max-num-seqs 64"))
    started = await box.start(spec=spec)
    assert isinstance(started, VllmProcess)
    await started.close()
    assert "'--max-num-seqs', '64', '--load-format=dummy'" in box.output()


async def test_a_process_that_does_not_start_gives_its_exit_code_and_its_last_words(box: Started) -> None:
    assert await box.start("--swap-space=4") == 2
    assert "unrecognized arguments: --swap-space=4" in box.output()


async def test_sigterm_ends_it_in_order_and_a_kill_does_not(box: Started) -> None:
    engine = await box.engine()
    await engine.terminate(time.time())
    assert await engine.exited == 0
    await engine.close()
    assert "shutdown triggered" in box.output()
    engine = await box.engine()
    engine.kill()
    assert await engine.exited == 137
    await engine.close()


@pytest.mark.parametrize("fault", [Fault("none"), Fault("dies", after=0.01)])
async def test_a_dead_engine_ends_its_container_with_exit_code_0(box: Started, fault: Fault) -> None:
    engine = await box.engine(fault=fault)
    if fault.kind == "none":
        engine.die("engine_killed", time.time())
    assert await engine.exited == 0
    await engine.close()
    assert "EngineDeadError" in box.output()


async def test_a_smaller_pool_starts_the_engine_again_in_its_container(box: Started) -> None:
    engine = await box.engine()
    assert engine.suffer(Fault("none"))
    assert not engine.suffer(Fault("small_pool", blocks=32))
    assert await engine.exited == START_AGAIN
    await engine.close()
    again = await box.engine(fault=Fault("small_pool", blocks=32))
    assert again.suffer(Fault("small_pool", blocks=32))
    await again.close()
    # Else it would not start: one request of full length must fit.
    assert "'--num-gpu-blocks-override=32', '--max-model-len=992']" in box.output().splitlines()[-2]


async def test_an_engine_that_starts_again_cuts_its_streams_at_once(box: Started) -> None:
    """The gateway asks right after, and never again: a stream that it misses would keep its client waiting for ever."""
    engine = await box.engine()
    cut = engine.send(40, 3, time.time())
    assert not engine.suffer(Fault("small_pool", blocks=32))
    assert engine.take_ended() == [cut]
    assert isinstance(cut, Sequence)
    assert (cut.finished_reason, engine.running) == ("cut", 0)
    assert engine.send(40, 500, time.time()) == "down"
    await engine.exited
    await engine.close()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not group by session")
async def test_an_engine_that_serves_leaves_the_cores_to_other_sessions(box: Started) -> None:
    """Each engine has its own session, so the niceness of its processes alone means nothing beside the others."""
    engine = await box.engine()
    assert autogroup_of(engine.pid).endswith(f"nice {SERVING_NICE}\n")
    await engine.close()


@pytest.mark.end_to_end
def test_a_replica_whose_engine_starts_again_is_loading_and_its_clients_go_on(program: Path) -> None:
    with demo_world("--vllm", str(program)) as world:
        sick, *_ = world.in_rotation()
        world.set_load(workers=8, output_tokens=[3, 3])  # these streams never end by themselves
        eventually("all wait for answers", lambda: sum(world.load()["in_flight"].values()) == 8)
        world.fault(sick, kind="small_pool", blocks=32)
        eventually("it loads", lambda: (pod := world.pod(sick)) is not None and is_loading(pod))
        assert world.container(sick)["restartCount"] == 0
        world.wait_for_rotation()
        eventually("all wait for answers again", lambda: sum(world.load()["in_flight"].values()) == 8)
        assert world.load()["cut"] == 2
        assert sum(one["open_streams"] for one in world.replicas().values()) == 8


async def test_streams_end_as_the_gateway_counts_them(box: Started) -> None:
    engine = await box.engine()
    streams = [engine.send(40, tokens, time.time()) for tokens in (500, 1, 2)]
    assert await ended(engine, *streams) == ["length", "shed", "empty"]
    assert box.output().count("prompt: 40 eos: True") == 3
    assert (await engine.state())["running"] == 3
    cut = engine.send(40, 3, time.time())
    engine.kill()
    await engine.exited
    assert await ended(engine, cut) in (["cut"], ["refused"])  # as far as its answer had come
    assert engine.running == 0
    assert engine.send(40, 500, time.time()) == "down"
    await engine.close()


async def test_a_fault_that_only_a_simulation_can_have_is_refused(box: Started) -> None:
    engine = await box.engine()
    assert engine.refusal("metrics_down") == "a real engine always serves its metrics"
    assert engine.refusal("cuda_oom")
    assert engine.refusal("small_pool") == engine.refusal("dies") == engine.refusal("hangs") == ""
    await engine.close()


def test_the_tokenizer_has_one_token_for_each_byte(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path)
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    config = json.loads((model / "config.json").read_text())
    assert len(vocabulary) == config["vocab_size"] == 258
    assert sorted(vocabulary.values()) == [*range(258)]
    kv_bytes = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 2
    assert kv_bytes == 2048
