"""Readings and watches: decisions on readings are three-valued; unknown has its own exit."""

from __future__ import annotations

from bot.domain.incidents.effect import DrawChart, StoreReport
from bot.domain.incidents.event import SeriesRead, SignalsRead, Watched
from bot.domain.incidents.machine import entering, questions, recommending, severity
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.named_values import ScopeValues, units_of
from bot.domain.incidents.run import Check, CheckResult, News
from bot.domain.incidents.series import as_evidence, series_in_words
from bot.domain.kernel.redaction import redacted
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.expressions.template import NOT_KNOWN
from bot.domain.playbooks.language import AskState, ReadState, RecommendState
from bot.domain.signals.signal import Reading

NEWS = 4
"""How many verdicts and outcomes one message begins with, at most; all are on the timeline."""


def signals_read(draft: Draft, event: SignalsRead) -> None:
    if not draft.is_of_this_visit(event.effect_id) or draft.run.question:
        draft.ignore("readings for a state that was left")
        return
    keep(draft, event.readings)
    state = draft.playbook.state(draft.run.visit.state)
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
    draft.set(latest=run.latest | readings)
    draft.visit(readings=run.visit.readings | readings)
    draft.learn(results=results | {run.visit.state: results.get(run.visit.state, {}) | readings})
    conclude(draft)
    known = sum(1 for reading in readings.values() if reading.is_known)
    draft.record("read", f"{known} of {len(readings)} signals read", data=_data(readings))


def conclude(draft: Draft) -> None:
    """Say in sentences what the newest readings mean: what users feel, and what the trouble is."""
    run, playbook = draft.run, draft.playbook
    mentioned = playbook.mentioned_signals
    if not mentioned:
        return
    # Another playbook's signal of the same name may mean something else.
    seen = {name for earlier in run.findings.results.values() for name in earlier} | run.visit.readings.keys()
    newest = {name: run.latest[name] for name in mentioned if name in seen and name in run.latest}
    found = playbook.conclusion(ScopeValues(run, newest), units_of(newest))
    # What it was found to be stays its title; the sentence about it holds only while it is read again.
    draft.set(diagnosis=redacted(found.title) or run.diagnosis, cause=redacted(found.cause))
    if found.users:
        read = [newest[name].at for name in found.read_of_users if name in newest]
        # A sentence is as old as the oldest reading in it.
        draft.set(users=redacted(found.users), users_at=min(read, default=0.0) or draft.at)


def _data(readings: dict[str, Reading]) -> dict[str, object]:
    return {name: reading.model_dump(mode="json", exclude_defaults=True) for name, reading in readings.items()}


def _choose(draft: Draft, state: ReadState) -> None:
    values = ScopeValues(draft.run, draft.run.visit.readings)
    picks = draft.playbook.picks(draft.run.visit.state, values)
    if isinstance(picks, Unknown):
        return _unknown(draft, state, picks)
    if picks:
        draft.learn(picked=draft.run.findings.picked | picks)
        values = ScopeValues(draft.run, draft.run.visit.readings)
    taken = draft.playbook.choose(draft.run.visit.state, values, units_of(draft.run.visit.readings))
    if isinstance(taken, Unknown):
        return _unknown(draft, state, taken)
    clause = state.go[taken.index]
    if clause.severity:
        severity.set_by_playbook(draft, clause.severity, clause.note or draft.playbook.called(draft.run.visit.state))
    elif clause.note:
        # How urgent it is stands in the line about users.
        readings = _of_probes(draft, taken.read_of) if clause.when else ""
        _check(draft, "found" if clause.when else "ruled_out", clause.note + (f" ({readings})" if readings else ""))
    # The note of `otherwise` names what is not there.
    ruled_out = f"ruled out: {clause.note}" if clause.note and not clause.when and not clause.severity else clause.note
    draft.looked(f"{ruled_out or taken.seen} → {draft.playbook.called(taken.destination)}")
    return entering.go(draft, f"go:{taken.destination}", because=taken.text, clause=taken.index)


def _of_probes(draft: Draft, signals: tuple[str, ...]) -> str:
    """What the probes among these signals say of what was found."""
    read = (draft.run.visit.readings[name] for name in signals if name in draft.run.visit.readings)
    return "; ".join(dict.fromkeys(each.sentence for each in read if each.sentence))


def _unknown(draft: Draft, state: ReadState, why: Unknown) -> None:
    text = f"cannot decide: {draft.playbook.in_words(why, draft.run.visit.readings)}"
    notes = [clause.note for clause in state.go if clause.note and not clause.severity]
    if notes:
        # The note of `otherwise`, or the only one, names it. A title, often a question, is a quotation among others.
        is_named = bool(state.go[-1].note) or len(set(notes)) == 1
        _check(draft, "unknown", notes[-1] if is_named else f"“{draft.playbook.called(draft.run.visit.state)}”")
    draft.looked(text)
    entering.go(draft, "unknown", because=text)


def _check(draft: Draft, found: CheckResult, text: str) -> None:
    """Keep what a state found out; a later visit, or another look at the same thing, replaces what was found before."""
    here = draft.run.visit.state
    others = tuple(each for each in draft.run.findings.checks if each.state != here and each.text != text)
    draft.learn(checks=(*others, Check(state=draft.run.visit.state, found=found, text=text)))


def series_read(draft: Draft, event: SeriesRead) -> None:
    """Draw the chart from the data on the timeline, like every report."""
    draft.record(
        "chart",
        f"{'so far' if draft.run.is_open else 'over the whole time'}: {series_in_words(event.lines)}",
        data=as_evidence(event.lines),
    )
    if any(line.points for line in event.lines):
        draft.want(DrawChart(effect_id=f"chart/{event.effect_id}", slot=_that_shows_it(draft)))
    store_report(draft, event.effect_id)


def _that_shows_it(draft: Draft) -> str:
    """The newest diagnosis, which is above the question; after the end the closing message."""
    kind = "diagnosis" if draft.run.is_open else "closed"
    return next((post.slot for post in reversed(draft.run.posts) if post.kind == kind), "")


def store_report(draft: Draft, effect_id: str) -> None:
    """Keep the report outside once the history of a closed incident was read, or could not be."""
    if draft.rules.stores_reports and not draft.run.is_open:
        draft.want(StoreReport(effect_id=f"report/{effect_id}"))


def watched(draft: Draft, event: Watched) -> None:
    if not draft.is_of_this_visit(event.effect_id) or draft.run.watch is None:
        draft.ignore("a verdict for a watch that was left")
        return
    keep(draft, event.readings)
    title = draft.playbook.called(draft.run.visit.state)
    data = {"verdict": event.verdict, "parts": event.parts, "text": event.detail, "title": title}
    draft.record("verdict", f"{title}: {event.verdict.replace('_', ' ')} — {event.detail}", data=data)
    said = draft.text("say")
    text = f"{_missing(event)}{said}" if said and said != NOT_KNOWN else _why_not(draft, event)
    news = News(title=title, result=event.verdict, text=text, at=draft.at, parts=dict(event.parts))
    if news.text or event.verdict != "held":
        # That replicas are ready as expected is no news.
        draft.set(news=(*draft.run.news, news)[-NEWS:])
    outcome = f"broke:{event.broke}" if event.verdict == "broke" else event.verdict
    entering.go(draft, outcome, because=event.detail)


def _missing(event: Watched) -> str:
    """Names what did not hold beside what held: a sentence of numbers may show only the latter."""
    lacking = [part.replace("_", " ") for part, status in event.parts.items() if status != "held"]
    if event.verdict != "not_held" or not 0 < len(lacking) < len(event.parts):
        return ""
    return f"not met: {', '.join(lacking)}; "


def _why_not(draft: Draft, event: Watched) -> str:
    """Returns why a watch that has no `say` did not hold; empty if it held."""
    state, values = draft.run.visit.state, ScopeValues(draft.run, draft.run.visit.readings)
    units = units_of(draft.run.latest)
    if event.verdict == "unknown":
        return "; ".join(dict.fromkeys(why for part in event.parts.values() if (why := part.partition(": ")[2])))
    if event.broke is not None:
        return draft.playbook.broke_values(state, event.broke, values, units)
    lacking = [part for part, status in event.parts.items() if status != "held"]
    return draft.playbook.watch_values(state, lacking, values, units) if event.verdict == "not_held" else ""
