"""A bot that serves imports what every incident needs, and nothing that many never need."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SERVES = """
import sys
from bot.cli.serve import wiring_alone
wiring_alone()
from bot.adapters.yaml_playbooks import load_folders
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.adapters.kubernetes.library import library
for name in ("client.api_client", "config", "stream"):
    library(name)
load_folders((packaged_playbooks(),))
print(*(name for name, module in sys.modules.items() if module is not None))
"""
MAY_BE_NEVER_NEEDED = {
    "rich": "colours in a terminal",
    "pygments": "colours in a terminal",
    "watchfiles": "a server that starts again when its code changes",
    "_sqlite3": "stores of OAuth",
    "ruamel.yaml": "a settings file, or a playbook that is not YAML",
    "matplotlib": "pictures",
    "numpy": "pictures",
    "jinja2": "reports as a page",
    "obstore": "reports in a bucket",
    "jsonschema": "tests",
    "kubernetes.client": "the synchronous client",
    "requests": "the synchronous client",
    "slack_bolt.adapter.socket_mode": "Socket Mode",
    "kubernetes.aio.client.models.v1_pod": "models of the Kubernetes client, which sends and reads plain JSON here",
}


@pytest.fixture(scope="module")
def imported() -> frozenset[str]:
    """What a fresh interpreter has imported before the bot listens."""
    printed = subprocess.run([sys.executable, "-c", SERVES], check=True, capture_output=True, text=True).stdout
    return frozenset(printed.split())


@pytest.mark.parametrize("name", MAY_BE_NEVER_NEEDED)
def test_what_may_never_be_needed_is_not_imported_at_the_start(name: str, imported: frozenset[str]) -> None:
    assert "bot.wiring" in imported
    assert name not in imported, f"import it where it is used: {MAY_BE_NEVER_NEEDED[name]}"


COMMAND = """
import contextlib, sys
sys.argv = ["incident-bot", *{typed!r}]
from bot.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
    main()
from bot.settings.model import Settings
print(Settings.model_fields["cluster"].description)
"""


@pytest.mark.parametrize(("typed", "are_read"), [(("serve", "--settings", "missing"), False), (("--help",), True)])
def test_only_a_bot_that_serves_does_without_the_descriptions_of_its_settings(
    typed: tuple[str, ...], are_read: bool
) -> None:
    code = COMMAND.format(typed=typed)
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert (printed.strip() != "None") == are_read


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with it ignored
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["incident-bot", {command!r}]
from bot.cli import main
main()
"""


@pytest.mark.parametrize(("command", "module"), [("demo", "bot.cli.app"), ("serve", "bot.cli.serve")])
def test_ctrl_c_while_modules_are_imported_ends_the_command_without_a_traceback(command: str, module: str) -> None:
    code = INTERRUPTED.format(command=command, module=module)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
