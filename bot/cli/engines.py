"""The options `--engines` and `--vllm`: what serves in the sandbox, and where the real one is."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli.failures import CommandError, NotInstalledError

if TYPE_CHECKING:
    from bot.sandbox.scenarios import Scenario

WHEEL = "https://github.com/vllm-project/vllm/releases/download/v{0}/vllm-{0}+cpu-cp38-abi3-manylinux_2_35_x86_64.whl"
VERSION = "0.32.0"
HOW_TO_INSTALL = f"""\
Install vLLM for the CPU in its own environment (about 3 GB), and pass its path:
  python3 -m venv ~/vllm
  ~/vllm/bin/pip install {WHEEL.format(VERSION)} --extra-index-url https://download.pytorch.org/whl/cpu
  incident-bot demo --engines vllm --vllm ~/vllm
Other machines: https://docs.vllm.ai/en/latest/getting_started/installation/cpu/"""


class Engines(StrEnum):
    simulated = "simulated"
    vllm = "vllm"


EnginesOption = Annotated[
    Engines,
    typer.Option("--engines", help="What serves: simulated engines, or real vLLM on this machine's CPU."),
]
VllmOption = Annotated[
    Path | None,
    typer.Option(
        "--vllm", metavar="PATH", help="The vllm command, or the environment it is in; default: the one on PATH."
    ),
]


def vllm_for(engines: Engines, given: Path | None, scenario: Scenario) -> Path | None:
    """The vLLM command to run; None for simulated engines.

    Raises `CommandError` if real engines cannot play this scenario, `NotInstalledError` if there is no vLLM.
    """
    if engines is Engines.simulated:
        if given is not None:
            raise CommandError("--vllm names the vLLM of real engines; add --engines vllm")
        return None
    from bot.sandbox.scale import impossible_on_a_cpu

    if needed := impossible_on_a_cpu(scenario):
        raise CommandError(f"{scenario.name} needs {needed}. Play it with --engines simulated.")
    return find_vllm(given)


def find_vllm(given: Path | None) -> Path:
    """Raises `NotInstalledError`, which says how to install it."""
    tried = [given, given / "bin" / "vllm"] if given is not None else [Path("vllm")]
    for path in tried:
        if found := shutil.which(path.expanduser()):
            return Path(found)
    where = f"{given} is not a vllm command" if given is not None else "there is no vllm command on your PATH"
    raise NotInstalledError(f"Real engines need vLLM, and {where}.\n{HOW_TO_INSTALL}")


def what_differs(vllm: Path) -> str:
    """What people should know before they compare the two worlds."""
    from bot.sandbox.scale import TWO_CORES, WRITTEN_FOR

    scale = TWO_CORES
    return (
        f"Real engines ({vllm}) start on this machine's CPU, with a tiny random model. Two cores run only a few: "
        f"{scale.replicas} replicas instead of {WRITTEN_FOR} with the same clients for each, and every window and wait "
        f"is {scale.slower} times as long. Kubernetes, GPUs and Slack are simulated as before. Trust states, "
        "counters and logs, not speeds."
    )
