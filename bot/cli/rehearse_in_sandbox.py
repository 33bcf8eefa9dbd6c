"""`incident-bot playbook rehearse NAME` without a recording: a whole run of the real bot in the sandbox."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import typer

from bot.adapters.yaml_playbooks import load_folders, with_packaged
from bot.cli import stored
from bot.cli.demo import LOOK_EVERY_SECONDS, unless_busy, wait
from bot.cli.engines import what_differs
from bot.cli.failures import CommandError
from bot.cli.playbook_rehearse import SHOWN, shown
from bot.domain.incidents.run import Run
from bot.domain.kernel.durations import is_duration, seconds
from bot.domain.kernel.numbers import is_number
from bot.domain.kernel.timeline import Chained
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.template import split_template
from bot.domain.playbooks.language import AskState
from bot.domain.playbooks.matchers import parse_matchers
from bot.domain.playbooks.testing.cases import Circumstances, replies
from bot.sandbox import demo
from bot.sandbox.approver import Approver
from bot.sandbox.plain_http import http
from bot.sandbox.processes import tail
from bot.sandbox.scale import SIMULATED, TWO_CORES, Scale
from bot.sandbox.scenarios import Labels, Scenario

MAX_SECONDS = 300.0
OPENS_WITHIN_SECONDS = 30.0
WARM_UP_SECONDS = 6.0
LONG_SECONDS = 30.0
"""A wait of this length is worth shortening where somebody looks on."""
LABELS = {
    "alertname": "VllmKVCacheThrash",
    "namespace": "serving",
    "deployment": "llm",
    "severity": "warning",
    "cluster": "sandbox",
}


@dataclass(frozen=True)
class Wanted:
    """What to rehearse, and the fault."""

    playbook: CompiledPlaybook
    scenario: Scenario
    written: Circumstances
    settings: Mapping[str, str]
    labels: Mapping[str, str]
    attended: bool
    vllm: Path | None = None
    """Runs real engines on the CPU; None: simulated ones."""

    @property
    def scale(self) -> Scale:
        return TWO_CORES if self.vllm else SIMULATED


def refuse_what_is_ignored(written: Circumstances, playbook: CompiledPlaybook, file: Path | None) -> None:
    """Raises `CommandError` for values that the sandbox decides itself: ignoring them would mislead."""
    ignored = [f"'{name}'" for name in sorted(written.model_fields_set - {"answers", "settings"})]
    for name, answer in written.answers.items():
        choices = getattr(playbook.state(name), "choices", ())
        ignored += [f"'{each.choice}' in '{name}'" for each in replies(answer) if each.choice not in choices]
    if ignored:
        named = ", ".join(ignored)
        raise CommandError(
            f"{file}: {named} works only over a recording (--scrapes DIR). In the sandbox, readings and the outcomes "
            "of changes come from its fleet and cluster, and a script presses choices. Remove it, or choose the fault "
            "with --scenario."
        )


def wanted_alert(playbook: CompiledPlaybook, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The labels of an alert that opens this playbook. Raises `CommandError` if it opens none, or another one."""
    labels = {**LABELS, **given}
    matching = load_folders(with_packaged(folder)).match(labels)
    if matching and matching[0].name == playbook.name:
        return labels
    instead = f"'{matching[0].name}' would" if matching else "no playbook would"
    lines = "; ".join(playbook.playbook.opens_on) or "none: alerts do not open it"
    raise CommandError(
        f"{instead} open on an alert {labels['alertname']}; '{playbook.name}' opens on: {lines}\n"
        f"Name labels that open it; example: --alert alertname={_an_alert_of(playbook)}"
    )


def _an_alert_of(playbook: CompiledPlaybook) -> str:
    matchers = [matcher for line in playbook.playbook.opens_on for matcher in parse_matchers(line)]
    named = (each.value for each in matchers if (each.label, each.operator) == ("alertname", "="))
    return next(named, LABELS["alertname"])


def shortened(playbook: CompiledPlaybook, given: Mapping[str, str], scale: Scale = SIMULATED) -> dict[str, str]:
    """The demo's windows that this playbook has too, none shorter than it allows, and the values set by hand."""
    windows: dict[str, str] = {}
    for name, value in scale.windows(demo.WINDOWS).items():
        setting = playbook.playbook.settings.get(name)
        if setting is None or not isinstance(setting.default, str):
            continue
        least = str(setting.min) if setting.min is not None else "0s"
        windows[name] = value if seconds(value) >= seconds(least) else least
    return {**windows, **given}


def window_lines(playbook: CompiledPlaybook, windows: Mapping[str, str]) -> list[str]:
    """Which durations are shortened, and which are so long that the rehearsal will take its time."""
    declared = playbook.playbook.settings.items()
    durations = {name: str(each.default) for name, each in declared if isinstance(each.default, str)}
    long = {
        name: written
        for name, written in durations.items()
        if name not in windows and is_duration(written) and seconds(written) > LONG_SECONDS
    }
    lines = [f"Windows are shortened: {_listed(windows)}" if windows else "No window of this playbook is shortened."]
    return [*lines, f"As long as written: {_listed(long)}. `--set NAME=10s` shortens one."] if long else lines


def _listed(windows: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in windows.items())


def rehearse(wanted: Wanted) -> int:
    """Returns the exit code: 0 if the incident was closed in time."""
    scale, windows = wanted.scale, shortened(wanted.playbook, wanted.settings, wanted.scale)
    typer.echo("Starting Valkey, Kubernetes, the vLLM fleet, Slack and the bot …")
    if wanted.vllm is not None:
        typer.echo(what_differs(wanted.vllm))
    with demo.world(start_bot=False, with_alerting=False, vllm=wanted.vllm) as world:
        world.bot_environment["INCIDENT_BOT_PLAYBOOKS"] = ",".join(
            map(str, with_packaged(Path(wanted.playbook.file).parent.absolute()))
        )
        world.bot_environment["INCIDENT_BOT_OVERRIDES"] = ",".join(f"{name}={value}" for name, value in windows.items())
        world.start_bot()
        typer.echo(f"Slack page: {world.slack_url}")
        for line in window_lines(wanted.playbook, windows):
            typer.echo(line)
        world.load(wanted.scenario.healthy_load)
        wait(world, scale.seconds(WARM_UP_SECONDS))
        typer.echo(f"Fault: {wanted.scenario.what}.")
        world.cause_trouble(wanted.scenario)
        wait(world, scale.seconds(demo.ALERT_AFTER_SECONDS))
        _alert(world, wanted.labels)
        return _follow(world, wanted)


def _alert(world: demo.World, labels: Mapping[str, str]) -> None:
    token = world.bot_environment["INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN"]
    http().post(
        f"{world.bot_url}/alertmanager",
        json=webhook(labels),
        headers={"Authorization": f"Bearer {token}"},
        timeout=10,
    ).raise_for_status()


def webhook(labels: Mapping[str, str]) -> dict[str, object]:
    """Alertmanager's webhook: version 4, one firing alert."""
    alert = {
        "status": "firing",
        "labels": dict(labels),
        "annotations": {"summary": "a rehearsal"},
        "startsAt": datetime.now(UTC).isoformat(),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": "7e4ea75a1",
    }
    name = {"alertname": labels["alertname"]}
    return {
        "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "incident-bot",
        "groupLabels": name, "commonLabels": dict(labels), "commonAnnotations": {}, "externalURL": "",
        "alerts": [alert],
    }  # fmt: skip


def _follow(world: demo.World, wanted: Wanted) -> int:
    began, printed, within = time.time(), 0, wanted.scale.limit(MAX_SECONDS)
    pressed, filled = labels_to_press(wanted), fields_to_fill(wanted)
    approver = Approver(world.slack_url, demo.CHANNEL, pressed, typer.echo, filled, world.commit)

    def look() -> tuple[Sequence[Chained], Run | None]:
        if not wanted.attended:
            approver.look()
        run = stored.loaded(stored.load_run(world.redis_url, "INC-1"))
        # After the run, so that the timeline of a closed one is whole.
        return stored.loaded(stored.load_timeline(world.redis_url, "INC-1")), run

    while time.time() - began < within or wanted.attended:
        wait(world, LOOK_EVERY_SECONDS)
        found = unless_busy(look, typer.echo)
        if found is None:
            continue
        entries, run = found
        for item in entries[printed:]:
            if item.entry.kind in SHOWN:
                typer.echo(shown(item.entry, began))
        printed = len(entries)
        if not entries and time.time() - began > OPENS_WITHIN_SECONDS:
            kept = stored.loaded(stored.load_unmatched(world.redis_url))
            typer.echo(nothing_opened([why for _, why in kept], tail(world.folder / "bot.log")))
            return 1
        if run is not None and not run.is_open:
            for line in summary(run):
                typer.echo(line)
            return 0
    typer.echo(f"The incident was not closed within {within:.0f} s.")
    return 1


def nothing_opened(reasons: Sequence[str], log: str) -> str:
    """Why the alert opened no incident, as the bot stored it; without a reason, its last output."""
    if not reasons:
        return f"The alert opened no incident, and the bot gave no reason. Its last output:\n{log}"
    why = "; ".join(dict.fromkeys(reasons))
    return f"The alert opened no incident: {why}.\nGive it other labels; example: --alert deployment=llm"


def summary(run: Run) -> Iterator[str]:
    yield ""
    yield f"path: {' → '.join(run.findings.path)}"
    for request in run.requests.values():
        yield f"proposed in '{request.state}': {request.plan.title} ({request.status_text})"
    yield f"ended: {run.ending}"


def labels_to_press(wanted: Wanted) -> dict[str, Labels]:
    """The scripted approver's answers: a part of a question's text to what it presses there each time.

    Of several that fit a question the first counts, so those of the file come before those of the scenario.
    """
    pressed: dict[str, Labels] = {}
    for name, answer in wanted.written.answers.items():
        state = wanted.playbook.playbook.states[name]
        if isinstance(state, AskState) and (part := _fixed_part(state.ask)):
            pressed[part] = tuple(_fixed_part(state.choices[each.choice].label) for each in replies(answer))
    return pressed | {part: labels for part, labels in wanted.scenario.answers.items() if part not in pressed}


def fields_to_fill(wanted: Wanted) -> dict[str, str]:
    """What the scripted approver enters into forms, by field."""
    answers = (each for answer in wanted.written.answers.values() for each in replies(answer))
    typed = ((name, value) for each in answers for name, value in each.fields.items())
    # A whole number is typed without a point.
    return {**wanted.scenario.filled, **{name: f"{it:.15g}" if is_number(it) else str(it) for name, it in typed}}


def _fixed_part(text: str) -> str:
    """The longest part of a text that no reading changes."""
    return max((part for part, is_expression, _ in split_template(text) if not is_expression), key=len, default="")
