"""Brings Slack up to date with a run: posts new messages in order, then updates changed ones.

A post is sent again only after two look-ups have not found it. Slack has no idempotency keys; a metadata key is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import structlog

from bot.adapters.slack.client import (
    LAYOUT_REFUSED,
    OF_THE_BOT,
    OF_THE_CHANNEL,
    OF_THE_SCOPES,
    POST,
    Refusal,
    SlackClient,
    ask,
    must_try,
    session_of,
)
from bot.adapters.slack.escape import announcement, whisper
from bot.adapters.slack.outbound.card import PAGE, card
from bot.adapters.slack.outbound.incident_channel import (
    CHANNEL,
    ChannelRules,
    IncidentChannels,
    is_out_of_reach,
    thread_of,
)
from bot.adapters.slack.outbound.lookup import SETTLE_SECONDS, Key, time_left
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.messages import thread
from bot.adapters.slack.outbound.pause_detector import PauseDetector
from bot.adapters.slack.outbound.post_once import find_only, post
from bot.adapters.slack.outbound.posting_refusals import Kind, PostingRefusals
from bot.adapters.slack.outbound.shown import Pace, Shown, ShownStore
from bot.adapters.slack.outbound.summary import Summary
from bot.adapters.slack.outbound.uploads import Uploads
from bot.domain.incidents.event import CARD, Event, Posted
from bot.domain.incidents.run import Post, Run
from bot.domain.kernel.errors import MessengerError, OvertakenError, PaceError, StorageUnavailableError
from bot.domain.kernel.page_links import PageLinks
from bot.domain.kernel.target import Target
from bot.flow.ports.people import Clock, Displayed, Draw, PartlyShownError

log = structlog.get_logger(__name__)

LOOKUPS_BEFORE_REPOST = 2
PROGRESS_EVERY_SECONDS = 10.0
REFUSED_AGAIN_SECONDS = 1.0
MAX_FILE_REST_SECONDS = 60.0
SHARED, REFUSED = "shared", "refused"
"""Replace a message's hash for a file, which is never edited."""
PICTURE = "picture:"
"""Begins the slot of a picture that a message shows."""
PROCESSED_WITHIN_SECONDS, LOOK_AGAIN_SECONDS = 10.0, 0.5
"""How long Slack may take to process a picture before it is shared as a file, and how often the bot looks."""
LINKED = ("request:", "question:")
"""Slots to which the card links."""


@dataclass(frozen=True)
class Place:
    """Where a deployment's incidents are shown; `deployment` keeps two bots in one channel apart."""

    channel: str
    deployment: str
    incident_channels: ChannelRules = field(default_factory=ChannelRules)
    """Whether each incident also has its own channel."""
    pages: PageLinks = field(default_factory=lambda: PageLinks("", b""))
    """The addresses of incident pages, for cards."""
    of_targets: tuple[tuple[str, str], ...] = ()
    """Targets, as `namespace/workload` with `*`, and the channel of their incidents; the last that matches counts."""

    def channels(self, target: Target) -> tuple[str, ...]:
        """The channel of the target's incidents, and the one to use if Slack refuses that one."""
        own = [channel for pattern, channel in self.of_targets if target.matches(pattern)]
        return tuple(dict.fromkeys((*own[-1:], self.channel)))


class SlackMessenger:
    """`flow.ports.Messenger` for Slack."""

    def __init__(
        self,
        client: SlackClient,
        store: ShownStore,
        pace: Pace,
        clock: Clock,
        place: Place,
        summary: Summary | None = None,
    ) -> None:
        """Without a summary, every card is posted as soon as Slack's pace allows."""
        self._client, self._store, self._pace, self._clock, self._place = client, store, pace, clock, place
        self._summary = summary
        self._channels = IncidentChannels(client, store, place.deployment, place.incident_channels)
        self._uploads = Uploads(client)
        self._refusals = PostingRefusals(clock)

    @property
    def refused(self) -> str:
        """Why Slack refuses the bot's messages until a person fixes it; empty while it accepts them."""
        return self._refusals.reason

    async def show(self, run: Run, shown: Mapping[str, str] | None = None) -> Displayed:
        must_try(self._client.circuits.messages.must_try)
        pauses = PauseDetector(self._clock.now, self._clock.now())
        known = await self._store.load(run.incident_id) if shown is None else self._store.read(run.incident_id, shown)
        slots = self._slots(run, known, pauses)
        async with self._saved(run, slots):
            events = await self._show(run, slots)
            changed = {} if shown is None else self._store.written(slots.take_unsaved())
        return Displayed(events, changed)

    async def _show(self, run: Run, shown: _Slots) -> Sequence[Event]:
        await self._hold_back(run, shown)
        posted: list[Event] = []
        if CARD in shown.missing() and (event := await self._post(run, shown, CARD)):
            posted.append(event)
        no_channel = await self._channels.stand(run, shown.shown)
        untaken: dict[str, MessengerError] = {}
        posted += await self._post_thread(run, shown, untaken)
        events = [*posted, *shown.unreported(posted)]
        refused = [no_channel, *untaken.values()] if no_channel else [*untaken.values()]
        calm_down = 0.0
        for slot, message in shown.out_of_date():
            if (wait := self._is_only_progress(shown.shown[slot], message)) > 0:
                calm_down = max(calm_down, wait)
                continue
            try:
                await self._update(run, shown, slot, message, may_give_up=not events)
            except MessengerError as error:
                if not error.lasting:
                    raise
                refused.append(error)
        # With events, messages refused for good are tried again and reported once the run knows what was posted.
        if refused and not events:
            await self._channels.notified(run, shown.shown)
            for slot in untaken:
                # Like a refused edit: not tried again until its content changes.
                shown.put(slot, Shown(hash=shown.rendered(slot).hash))
            raise refused[0]
        rest = await self._summary.has_card(run) if self._summary is not None else 0.0
        for left, seconds in (
            ("a message was refused", REFUSED_AGAIN_SECONDS if refused else 0.0),
            ("the summary is not up to date", rest),
            ("only progress has changed", calm_down),
        ):
            if seconds > 0:
                raise PartlyShownError(left, events, retry_after_seconds=seconds)
        await self._channels.close(run, shown.shown)
        return events

    def _is_only_progress(self, entry: Shown, message: Message) -> float:
        """Seconds until an edit that shows nothing but progress and newer numbers is due; 0: edit now."""
        if not message.lasting or entry.lasting != message.lasting:
            return 0.0
        return time_left(PROGRESS_EVERY_SECONDS, entry.edited_at, self._clock.now())

    async def _post_thread(self, run: Run, shown: _Slots, untaken: dict[str, MessengerError]) -> list[Event]:
        """Puts a message that Slack will never accept into `untaken` and continues with the next."""
        posted: list[Event] = []
        for slot in shown.missing():
            try:
                if event := await self._post(run, shown, slot):
                    posted.append(event)
            except MessengerError as error:
                if not error.lasting:
                    raise
                untaken[slot] = error
        return posted

    async def want_card(self, incident_id: str) -> None:
        """A person looks for this incident: post its card now, and try Slack again at once."""
        self.ask_again()
        if self._summary is not None:
            await self._summary.want(incident_id)

    def ask_again(self) -> None:
        self._refusals.try_again()

    async def links(self, incident_id: str) -> Mapping[str, str]:
        """The addresses of what waits for people, by slot."""
        shown = await self._store.load(incident_id)
        return {slot: entry.link for slot, entry in shown.items() if entry.link}

    async def notify(self, user: str, channel: str, text: str, *, response_url: str) -> None:
        shown = whisper(text)
        if response_url and await self._answer(response_url, shown):
            return
        result = await ask(self._client.chat_postEphemeral(channel=channel, user=user, text=shown))
        if isinstance(result, Refusal):
            raise result.as_error(f"telling {user}")

    async def announce(self, text: str, *, mentions: Collection[str] = ()) -> None:
        await self._wait_for_pace("post", self._place.channel)
        shown = announcement(text, people=mentions)
        result = await ask(self._client.chat_postMessage(channel=self._place.channel, text=shown))
        if isinstance(result, Refusal):
            raise result.as_error("announcing")

    async def upload(self, run: Run, *, key: str, name: str, content: Draw, comment: str) -> None:
        pauses = PauseDetector(self._clock.now, self._clock.now())
        slots = dict(await self._store.load(run.incident_id))
        root = thread_of(slots)
        if not slots.get(CARD, Shown()).ts:
            reason = f"the card of {run.incident_id} is not in Slack yet"
            raise MessengerError(reason, lasting=False, retry_after_seconds=self._until_the_card_is_there(run))
        slot = f"file:{key}"
        entry = slots.get(slot, Shown())
        if entry.hash:
            # The process may have died right before this.
            return await self._channels.close(run, slots)
        if entry.attempt_at:
            rest = time_left(SETTLE_SECONDS, entry.attempt_at, self._clock.now())
            if rest > 0:
                raise MessengerError(f"the answer about {name} was lost", lasting=False, retry_after_seconds=rest)
            if await self._uploads.is_shared(entry.ts, entry.channel):
                slots[slot] = replace(entry, hash=SHARED)
                await self._store.save(run.incident_id, {slot: slots[slot]})
                return await self._channels.close(run, slots)
        if not entry.ts:
            self._uploads.must_try()
            entry = Shown(ts=await self._uploads.send(name, await content()), channel=root.channel)
        entry = replace(entry, attempt_at=pauses.stepped(f"uploading {name}"), channel=root.channel)
        await self._store.save(run.incident_id, {slot: entry})
        pauses.stepped(f"sharing {name}")
        await self._uploads.share(entry.ts, root, name=name, comment=announcement(comment, 2_000))
        if pauses.was_paused:
            await self._uploads.keep_first_share(entry.ts, root.channel)
        slots[slot] = replace(entry, hash=SHARED)
        await self._store.save(run.incident_id, {slot: slots[slot]})
        return await self._channels.close(run, slots)

    async def illustrate(self, run: Run, slot: str, *, name: str, draw: Draw, caption: str) -> None:
        slots = dict(await self._store.load(run.incident_id))
        message = slots.get(slot, Shown())
        if slot and not message.ts and not message.hash:
            rest = 1.0 if slots.get(CARD, Shown()).ts else self._until_the_card_is_there(run)
            raise MessengerError(f"{slot} is not in Slack yet", lasting=False, retry_after_seconds=rest)
        if message.ts and not is_out_of_reach(slots, message):
            picture = await self._picture(run, slots, slot, name=name, draw=draw, caption=caption)
            if picture.hash == SHARED:
                # Drawing takes a while, and the lease is renewed meanwhile.
                shown = self._slots(run, slots, PauseDetector(self._clock.now, self._clock.now()))
                if (rendered := shown.rendered(slot)).hash != message.hash:
                    async with self._saved(run, shown):
                        await self._update(run, shown, slot, rendered, may_give_up=True)
                picture = shown.shown[f"{PICTURE}{slot}"]
            if picture.hash == SHARED:
                return
        await self.upload(run, key=f"chart/{slot}", name=name, content=draw, comment=caption)

    async def _picture(
        self, run: Run, slots: dict[str, Shown], slot: str, *, name: str, draw: Draw, caption: str
    ) -> Shown:
        """The picture of a message, uploaded; raise while Slack processes it."""
        key = f"{PICTURE}{slot}"
        entry = slots.get(key, Shown())
        if not entry.ts:
            self._uploads.must_try()
            file_id = await self._uploads.send(name, await draw())
            await self._uploads.keep(file_id, name)
            entry = Shown(ts=file_id, alt_text=caption, attempt_at=self._clock.now())
            await self._store.save(run.incident_id, {key: entry})
        if not entry.hash:
            if await self._uploads.is_processed(entry.ts):
                entry = replace(entry, hash=SHARED)
            elif time_left(PROCESSED_WITHIN_SECONDS, entry.attempt_at, self._clock.now()) > 0:
                raise MessengerError(f"Slack processes {name}", lasting=False, retry_after_seconds=LOOK_AGAIN_SECONDS)
            else:
                entry = replace(entry, hash=REFUSED)
            await self._store.save(run.incident_id, {key: entry})
        slots[key] = entry
        return entry

    async def share(self, channel: str, name: str, content: bytes, comment: str) -> None:
        """Upload a file that belongs to no incident, with a comment in mrkdwn. No retry: the asker can retry.

        Raise `MessengerError`.
        """
        file_id = await self._uploads.send(name, content)
        await self._uploads.share(file_id, Shown(channel=channel), name=name, comment=comment)

    def _slots(self, run: Run, shown: Mapping[str, Shown], pauses: PauseDetector) -> _Slots:
        return _Slots(run, shown, self._place.pages.of(run.incident_id, run.visit.entered_at), pauses)

    def _until_the_card_is_there(self, run: Run) -> float:
        """How long a file rests: in a storm some cards come after hours, and each file would ask every second."""
        return min(max((self._clock.now() - run.opened_at) / 10, 1.0), MAX_FILE_REST_SECONDS)

    async def _hold_back(self, run: Run, slots: _Slots) -> None:
        """Raise while a card that was never posted waits in the summary, together with its thread."""
        if self._summary is None or slots.shown.get(CARD, Shown()) != Shown():
            return
        if (wait := await self._summary.hold_back(run)) > 0:
            raise MessengerError(f"the card of {run.incident_id} waits", lasting=False, retry_after_seconds=wait)

    # --- posting -----------------------------------------------------------------------------------------------------

    async def _post(self, run: Run, slots: _Slots, slot: str) -> Event | None:
        """Post `slot` once; None when it was already posted."""
        entry = slots.shown.get(slot, Shown())
        root = slots.root_of(slot)
        if entry.attempt_at:
            found = await self._settle_attempt(run, slots, slot)
            if found is not None:
                return found
            entry = slots.shown[slot]
        channels = (root.channel,) if root.channel else self._place.channels(run.target)
        self._refusals.raise_if_refused("post")
        must_try(lambda: self._client.circuits.limits.must_try(POST, channels[0]))
        now = slots.pauses.stepped(f"posting {slot}")
        attempt = Shown(attempt_at=now, first_attempt_at=entry.first_attempt_at or now)
        unsaved = slots.unsaved | {slot: attempt}
        _go_on("post", await self._store.attempt(run.incident_id, unsaved, channel=channels[0]))
        slots.shown[slot] = attempt
        slots.unsaved.clear()
        slots.pauses.stepped(f"recording {slot}")
        message = slots.rendered(slot)
        result = await post(self._client, message, self._key(run, slot), channel=channels[0], thread=root.ts)
        if isinstance(result, Refusal) and result.error in OF_THE_CHANNEL and len(channels) > 1:
            # An incident is shown in the channel of all others rather than nowhere.
            log.error("slack.channel_refused", incident=run.incident_id, channel=channels[0], error=result.error)
            result = await post(self._client, message, self._key(run, slot), channel=channels[1], thread=root.ts)
        if isinstance(result, Refusal):
            if result.happened == "no":
                slots.put(slot, replace(entry, attempt_at=0.0))
            raise self._refused(result, f"posting {slot}", "post", root.channel)
        if root.channel in ("", self._place.channel):
            self._refusals.accepted("post")
        if slots.pauses.was_paused:
            await self._take_back(run, slot, str(result["ts"]), str(result["channel"]))
        slots.pauses.stepped(f"posting {slot}")
        if entry.first_attempt_at:
            # An earlier attempt may have arrived since the look-up.
            found = await self._found(run, slots, slot, attempt)
            if found is not None:
                return found
        return await self._settled(run, slots, slot, str(result["ts"]), str(result["channel"]), message)

    async def _take_back(self, run: Run, slot: str, ts: str, channel: str) -> None:
        """Delete a message that came too late, if another process posted the slot; else a later look-up finds it."""
        present = (await self._store.load(run.incident_id)).get(slot, Shown())
        if present.ts and present.ts != ts:
            log.warning("slack.late_message_deleted", incident=run.incident_id, slot=slot, ts=ts)
            await ask(self._client.chat_delete(channel=channel, ts=ts))

    def _key(self, run: Run, slot: str) -> Key:
        return Key(self._place.deployment, f"{run.incident_id}/{slot}")

    async def _settled(
        self, run: Run, slots: _Slots, slot: str, ts: str, channel: str, message: Message | None = None
    ) -> Event:
        """Record that the slot was posted at `ts`; without its message, its content is not known and is edited."""
        link = await self._permalink(channel, ts) if slot.startswith(LINKED) else ""
        entry = Shown(ts=ts, channel=channel, link=link)
        if message is not None:
            entry = replace(entry, hash=message.hash, lasting=message.lasting, edited_at=self._clock.now())
        slots.put(slot, entry)
        log.debug("slack.posted", incident=run.incident_id, slot=slot, ts=ts)
        return _posted(slot, slots.shown[slot])

    async def _permalink(self, channel: str, ts: str) -> str:
        """The message's address; empty when Slack does not return it, and the card then has no link."""
        result = await ask(self._client.chat_getPermalink(channel=channel, message_ts=ts))
        return "" if isinstance(result, Refusal) else str(result.get("permalink", ""))

    # --- after a lost reply ------------------------------------------------------------------------------------------

    async def _settle_attempt(self, run: Run, slots: _Slots, slot: str) -> Event | None:
        """Find out whether the attempt arrived. None when two look-ups did not find it. Raise to come back later."""
        entry = slots.shown[slot]
        rest = time_left(SETTLE_SECONDS * (1 + entry.lookups), entry.attempt_at, self._clock.now())
        if rest > 0:
            raise MessengerError(f"the answer about {slot} was lost", lasting=False, retry_after_seconds=rest)
        found = await self._found(run, slots, slot, entry)
        if found is not None:
            return found
        looked = replace(entry, lookups=entry.lookups + 1)
        slots.put(slot, looked)
        if looked.lookups < LOOKUPS_BEFORE_REPOST:
            raise MessengerError(f"the answer about {slot} was lost", lasting=False, retry_after_seconds=SETTLE_SECONDS)
        return None

    async def _found(self, run: Run, slots: _Slots, slot: str, entry: Shown) -> Event | None:
        """The message of an earlier attempt, if it arrived; its content is updated afterwards."""
        root = slots.root_of(slot)
        for channel in (root.channel,) if root.channel else self._place.channels(run.target):
            found = await find_only(
                self._client, self._key(run, slot), channel=channel, since=entry.first_attempt_at, thread=root.ts
            )
            if isinstance(found, Refusal):
                if found.error in OF_THE_CHANNEL and channel != self._place.channel:
                    continue  # nothing was posted there
                raise self._refused(found, f"looking for {slot}", "post", root.channel)
            if found:
                return await self._settled(run, slots, slot, found, channel)
        return None

    # --- updating ----------------------------------------------------------------------------------------------------

    async def _update(self, run: Run, slots: _Slots, slot: str, message: Message, *, may_give_up: bool) -> None:
        """Edit in place. An edit that Slack refuses for good is not tried again until its content changes."""
        await self._wait_for_pace("update", "workspace")
        entry = slots.shown[slot]
        slots.pauses.stepped(f"updating {slot}")
        result = await self._edit(entry, message)
        if isinstance(result, Refusal) and result.error in LAYOUT_REFUSED and message.picture:
            log.error("slack.picture_refused", incident=run.incident_id, slot=slot, error=result.error)
            picture = f"{PICTURE}{slot}"
            slots.put(picture, replace(slots.shown[picture], hash=REFUSED))
            message = message.without_picture()
            result = await self._edit(entry, message)
        if isinstance(result, Refusal) and result.error in LAYOUT_REFUSED:
            log.error("slack.layout_refused", incident=run.incident_id, slot=slot, error=result.error)
            result = await self._edit(entry, message.as_plain_text())
        if isinstance(result, Refusal):
            error = self._refused(result, f"updating {slot}", "update", entry.channel)
            if error.lasting and may_give_up:
                slots.put(slot, replace(entry, hash=message.hash))
            raise error
        if entry.channel == self._place.channel:
            self._refusals.accepted("update")
        if slots.pauses.was_paused:
            # It may have come after a newer edit: whatever is recorded, the content is not known.
            present = (await self._store.load(run.incident_id)).get(slot, entry)
            await self._store.save(run.incident_id, {slot: replace(present, hash="", lasting="")})
        slots.pauses.stepped(f"updating {slot}")
        slots.put(slot, replace(entry, hash=message.hash, lasting=message.lasting, edited_at=self._clock.now()))

    def _refused(self, refusal: Refusal, doing: str, kind: Kind, channel: str) -> MessengerError:
        """The error for a refusal. One about the bot or its channel needs a person; any other concerns this message."""
        of_our_channel = channel in ("", self._place.channel) and refusal.error in OF_THE_CHANNEL | OF_THE_SCOPES
        if refusal.error in OF_THE_BOT or of_our_channel:
            return self._refusals.refused(kind, f"{doing}: Slack answered {refusal.error}")
        return refusal.as_error(doing)

    async def _edit(self, entry: Shown, message: Message) -> dict[str, Any] | Refusal:
        return await ask(
            self._client.chat_update(channel=entry.channel, ts=entry.ts, text=message.text, blocks=list(message.blocks))
        )

    async def _wait_for_pace(self, kind: Kind, key: str) -> None:
        self._refusals.raise_if_refused(kind)
        _go_on(kind, await self._pace.take(kind, key))

    @asynccontextmanager
    async def _saved(self, run: Run, slots: _Slots) -> AsyncIterator[None]:
        """Save at the end, or after a failure, what was put into the slots and is not saved yet.

        A process that dies before, was overtaken or has no storage saves nothing: what it posted is then looked up.
        """
        try:
            yield
        except (OvertakenError, StorageUnavailableError):
            raise
        except Exception:  # whatever failed: what was posted before it is known, and must not be posted again
            await self._save(run, slots)
            raise
        await self._save(run, slots)

    async def _save(self, run: Run, slots: _Slots) -> None:
        if unsaved := slots.take_unsaved():
            await self._store.save(run.incident_id, unsaved)

    # --- answers and files -------------------------------------------------------------------------------------------

    async def _answer(self, response_url: str, text: str) -> bool:
        """Whether Slack accepted it; a response address that is used up or expired no longer works."""
        body = {"text": text, "response_type": "ephemeral", "replace_original": False}
        try:
            async with session_of(self._client).post(response_url, json=body) as response:
                return response.status < 300
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise MessengerError(f"the answer was lost: {type(lost).__name__}", lasting=False) from lost


class _Slots:
    """The messages that a run needs and those that Slack shows; lives for one `show`."""

    def __init__(self, run: Run, shown: Mapping[str, Shown], page: str, pauses: PauseDetector) -> None:
        self.shown, self.pauses = dict(shown), pauses
        self.unsaved: dict[str, Shown] = {}
        """Slots of `shown` that the storage does not have yet."""
        self._run, self._page = run, page
        self._thread = {slot: self._illustrated(slot, message) for slot, message in thread(run)}
        self._card: tuple[Mapping[str, str], Message] | None = None
        """The card as it was last rendered, and the links in it."""

    def put(self, slot: str, entry: Shown) -> None:
        self.shown[slot] = self.unsaved[slot] = entry

    def take_unsaved(self) -> dict[str, Shown]:
        taken, self.unsaved = self.unsaved, {}
        return taken

    def _illustrated(self, slot: str, message: Message) -> Message:
        picture = self.shown.get(f"{PICTURE}{slot}", Shown())
        return message.with_picture(picture.ts, picture.alt_text) if picture.hash == SHARED else message

    def missing(self) -> list[str]:
        """Slots not known to be in Slack, in order, without those that Slack refuses for their current content."""
        unposted = [slot for slot in (CARD, *self._thread) if not self.shown.get(slot, Shown()).ts]
        return [slot for slot in unposted if self.shown.get(slot, Shown()).hash != self.rendered(slot).hash]

    def root_of(self, slot: str) -> Shown:
        """The message under which a slot goes; without `ts`, the channel."""
        return self.shown.get(CARD, Shown()) if slot == CARD else thread_of(self.shown)

    def rendered(self, slot: str) -> Message:
        if slot != CARD:
            return self._thread[slot]
        links = {slot: entry.link for slot, entry in self.shown.items() if entry.link}
        links |= {CHANNEL: self.shown[CHANNEL].channel} if CHANNEL in self.shown else {}
        links |= {PAGE: self._page} if self._page else {}
        if self._card is None or self._card[0] != links:
            self._card = links, card(self._run, links=links)
        return self._card[1]

    def out_of_date(self) -> list[tuple[str, Message]]:
        """Stale messages, the thread before the card: buttons that no longer count are removed first."""
        every = [(slot, self.rendered(slot)) for slot in (*self._thread, CARD) if self.shown[slot].ts]
        stale = [(slot, message) for slot, message in every if self.shown[slot].hash != message.hash]
        return [(slot, message) for slot, message in stale if not is_out_of_reach(self.shown, self.shown[slot])]

    def unreported(self, posted: Sequence[Event]) -> list[Event]:
        """Events for messages that are in Slack but unknown to the run, because the event was lost."""
        reported = {event.event_id for event in posted}
        slots = [] if self._run.in_slack.card_posted else [CARD]
        slots += [post.slot for post in self._run.posts if self._waits_for(post)]
        events = [_posted(slot, self.shown[slot]) for slot in slots if self.shown.get(slot, Shown()).ts]
        return [event for event in events if event.event_id not in reported]

    def _waits_for(self, post: Post) -> bool:
        """Whether the run needs the event: a request's time and the timeline's anchoring begin with it."""
        request = self._run.requests.get(post.ref) if post.kind == "request" else None
        is_waiting = request is not None and request.status == "open" and request.posted_at is None
        return is_waiting or ("head" in post.data and post.slot not in self._run.in_slack.anchored)


def _go_on(kind: Kind, wait: float) -> None:
    """Raise to come back if the pace has no token for this kind of call yet."""
    if wait > 0:
        raise PaceError(f"the pace of {kind}s is used up", lasting=False, retry_after_seconds=wait)


def _posted(slot: str, entry: Shown) -> Event:
    return Posted(event_id=f"posted:{slot}", slot=slot, ts=entry.ts, channel=entry.channel)
