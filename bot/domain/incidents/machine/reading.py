"""Readings and watches: decisions on readings are three-valued; unknown has its own exit."""

from __future__ import annotations

from bot.domain.incidents.effect import DrawChart
from bot.domain.incidents.event import SeriesRead, SignalsRead, Watched
from bot.domain.incidents.machine import entering, questions, recommending, severity
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Post, scope_values
from bot.domain.incidents.series import as_evidence, told
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.language import AskState, ReadState, RecommendState
from bot.domain.signals.signal import Reading


def signals_read(draft: Draft, event: SignalsRead) -> None:
    if not draft.is_of_this_visit(event.effect_id) or draft.run.question:
        draft.ignore("readings for a state that was left")
        return
    keep(draft, event.readings)
    state = draft.playbook.state(draft.run.state)
    if isinstance(state, AskState):
        questions.ask_written(draft, state)
    elif isinstance(state, ReadState):
        if state.baseline and not draft.run.findings.baseline:
            draft.learn(baseline=event.readings)
            draft.record("baseline", "baseline kept before any change", data=_data(event.readings))
        _choose(draft, state)
    elif isinstance(state, RecommendState):
        recommending.recommend(draft, state)


def keep(draft: Draft, readings: dict[str, Reading]) -> None:
    """Add readings to the run and to its timeline."""
    run, results = draft.run, draft.run.findings.results
    draft.set(readings=run.readings | readings, latest=run.latest | readings)
    draft.learn(results=results | {run.state: results.get(run.state, {}) | readings})
    known = sum(1 for reading in readings.values() if reading.is_known)
    draft.record("read", f"{known} of {len(readings)} signals read", data=_data(readings))


def _data(readings: dict[str, Reading]) -> dict[str, object]:
    return {name: reading.model_dump(mode="json", exclude_defaults=True) for name, reading in readings.items()}


def _choose(draft: Draft, state: ReadState) -> None:
    values = scope_values(draft.run, draft.run.readings, draft.playbook.settings)
    picks = draft.playbook.picks(draft.run.state, values)
    if isinstance(picks, Unknown):
        return _unknown(draft, picks)
    if picks:
        draft.learn(picked=draft.run.findings.picked | picks)
        values |= {f"picked.{name}": replica for name, replica in picks.items()}
    taken = draft.playbook.choose(draft.run.state, values)
    if isinstance(taken, Unknown):
        return _unknown(draft, taken)
    clause = state.go[taken.index]
    if clause.severity:
        severity.set_by_playbook(draft, clause.severity, clause.note or draft.playbook.called(draft.run.state))
    _show_diagnostics(draft, f"{clause.note or taken.seen} → {taken.destination}")
    return entering.go(draft, f"go:{taken.destination}", because=taken.text, clause=taken.index)


def _unknown(draft: Draft, why: Unknown) -> None:
    unread = {name: reading.unknown for name, reading in draft.run.readings.items() if not reading.is_known}
    missed = {name.partition(".")[0] for name in why.missing}
    reasons = "; ".join(f"{name}: {reason}" for name, reason in unread.items() if not missed or name in missed)
    text = f"cannot decide: {why.reason}" + (f" ({reasons})" if reasons else "")
    _show_diagnostics(draft, text)
    entering.go(draft, "unknown", because=text)


def _show_diagnostics(draft: Draft, way: str) -> None:
    """Readings of consecutive read states share one message in the thread."""
    posts = draft.run.posts
    readings = _data(draft.run.readings)
    last = posts[-1] if posts else None
    if last is not None and last.kind == "diagnostics":
        data = {
            "readings": last.data["readings"] | readings,
            "ways": [*last.data["ways"], [draft.run.state, way]],
        }
        updated = Post(slot=last.slot, kind="diagnostics", ref=last.ref, at=last.at, data=data)
        draft.set(posts=(*posts[:-1], updated))
    else:
        data = {"readings": readings, "ways": [[draft.run.state, way]]}
        draft.post("diagnostics", f"diagnostics:{draft.run.visit}", draft.run.state, data)


def series_read(draft: Draft, event: SeriesRead) -> None:
    """Draw the chart from the data on the timeline, like every report."""
    draft.record(
        "chart",
        f"{'so far' if draft.run.is_open else 'over the whole time'}: {told(event.lines)}",
        data=as_evidence(event.lines),
    )
    if any(line.points for line in event.lines):
        draft.want(DrawChart(effect_id=f"chart/{event.effect_id}"))


def watched(draft: Draft, event: Watched) -> None:
    if not draft.is_of_this_visit(event.effect_id) or draft.run.watch is None:
        draft.ignore("a verdict for a watch that was left")
        return
    keep(draft, event.readings)
    title = draft.playbook.state(draft.run.state).title or draft.run.state.replace("_", " ")
    data = {"verdict": event.verdict, "parts": event.parts, "text": event.detail, "title": title}
    draft.record("verdict", f"{title}: {event.verdict.replace('_', ' ')} — {event.detail}", data=data)
    draft.post("verdict", f"verdict:{draft.run.visit}", draft.run.state, data)
    outcome = f"broke:{event.broke}" if event.verdict == "broke" else event.verdict
    entering.go(draft, outcome, because=event.detail)
