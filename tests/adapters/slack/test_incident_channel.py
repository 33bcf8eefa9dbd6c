"""The optional incident channel: exactly one, with everyone who should be in it, and a link back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from bot.adapters.slack.outbound.incident_channel import ChannelRules, names_of, topic_of
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.outbound.shown import Shown
from bot.domain.incidents.event import CARD
from bot.domain.incidents.run import Halt, InSlack, Post, Run
from bot.domain.incidents.subjects import own_channels
from bot.domain.kernel.errors import MessengerError, StorageUnavailableError
from bot.domain.kernel.target import Target
from bot.flow.ports.people import PartlyShownError
from tests.adapters.slack.conftest import CHANNEL, Bench, Counter
from tests.adapters.slack.runs import BEGAN, approval, run, waiting
from tests.fakes.shown import MemoryShownStore, file_of

WANTED = ChannelRules(wanted=True, users=("U0MO",), user_groups=("S0SERVING",))
ARCHIVING = ChannelRules(wanted=True, archive=True)
THREAD = ["INC-7/diagnosis:1", "INC-7/request:R3"]
PLACES = {"card": (CHANNEL, "1.1"), "request:R3": ("C0MADE2", "2.2")}


class DyingStore(MemoryShownStore):
    """The process dies at one save, before it or right after it."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self._at, self._after, self._count = at, after, 0
        self.has_died = False

    async def save(self, incident_id: str, shown: Mapping[str, Shown]) -> None:
        self._count += 1
        dies = self._count == self._at
        if self._after or not dies:
            await super().save(incident_id, shown)
        if dies:
            self.has_died = True
            raise StorageUnavailableError("killed")


def messenger(bench: Bench, rules: ChannelRules = WANTED, store: MemoryShownStore | None = None) -> SlackMessenger:
    place = Place(channel=CHANNEL, deployment="tests", incident_channels=rules)
    return SlackMessenger(bench.client, store or bench.store, bench.pace, bench.clock, place)


async def settle(bench: Bench, speaker: SlackMessenger, shown: Run) -> None:
    """Come back until it is shown, as the flow does."""
    for _ in range(12):
        try:
            await speaker.show(shown)
        except StorageUnavailableError:
            continue
        except MessengerError as error:
            if error.lasting:
                raise
            bench.clock.move(error.retry_after_seconds)
        else:
            return
    raise AssertionError("the messenger never came to an end")


async def made(bench: Bench) -> list[dict[str, Any]]:
    """The channels that the bot made."""
    every = (await bench.client.conversations_list(limit=100))["channels"]
    return [channel for channel in every if channel["creator"] == "U0INCIDENT"]


async def slots(bench: Bench, channel: str) -> list[str]:
    """What stands in a channel itself, oldest first."""
    answer = await bench.client.conversations_history(channel=channel, include_all_metadata=True)
    return [message["metadata"]["event_payload"]["slot"] for message in reversed(answer["messages"])]


async def test_who_halts_on_the_command_line_is_invited_nowhere(bench: Bench) -> None:
    speaker = messenger(bench)
    await settle(bench, speaker, run(halt=Halt(by="ana (command line)"), lead="U0ANA"))
    invited = await bench.slack.calls("conversations.invite")
    assert "U0ANA" in str(invited)
    assert "command line" not in str(invited)


async def test_no_channel_is_made_unless_it_is_wanted(bench: Bench) -> None:
    await settle(bench, bench.messenger, waiting())
    assert await made(bench) == []
    assert await bench.slack.calls("conversations.create") == []


async def test_the_card_stays_and_leads_to_the_channel_where_everything_else_is(bench: Bench) -> None:
    await settle(bench, messenger(bench), waiting())
    [own] = await made(bench)
    assert await slots(bench, CHANNEL) == ["INC-7/card"]
    assert await slots(bench, own["id"]) == THREAD
    [card] = await bench.slack.messages()
    assert f"Everything else is in <#{own['id']}>" in str(card["blocks"])
    assert own["topic"]["value"] == topic_of(waiting())


async def test_the_on_call_people_are_in_it_and_whoever_presses_comes_in(bench: Bench) -> None:
    speaker = messenger(bench)
    await settle(bench, speaker, waiting())
    [own] = await made(bench)
    members = (await bench.client.conversations_members(channel=own["id"]))["members"]
    assert set(members) == {"U0INCIDENT", "U0MO", "U0ANA", "U0BEN", "U0LEA"}
    await settle(bench, speaker, waiting(presses=(approval("U0GUE"),), decided_at=BEGAN + 9))
    assert "U0GUE" in (await bench.client.conversations_members(channel=own["id"]))["members"]


async def test_somebody_who_cannot_be_invited_keeps_nobody_out(bench: Bench) -> None:
    rules = ChannelRules(wanted=True, users=("U0OLD", "U0NOBODY", "U0BEN"), user_groups=("S0GONE",))
    await settle(bench, messenger(bench, rules), waiting())
    [own] = await made(bench)
    assert "U0BEN" in (await bench.client.conversations_members(channel=own["id"]))["members"]
    assert await slots(bench, own["id"]) == THREAD


async def test_nothing_is_asked_of_slack_while_nothing_changes(bench: Bench) -> None:
    speaker = messenger(bench)
    await settle(bench, speaker, waiting())
    await settle(bench, speaker, waiting())
    asked = [call["method"] for call in await bench.slack.calls("conversations.invite")]
    assert len(asked) == 1
    assert len(await bench.slack.calls("conversations.setTopic")) == 1
    assert len(await bench.slack.calls("usergroups.users.list")) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before-a-save", "after-a-save"])
@pytest.mark.parametrize("at", range(1, 8))
async def test_a_crash_at_any_save_leaves_one_channel_and_every_message_once(
    bench: Bench, at: int, after: bool
) -> None:
    store = DyingStore(at, after=after)
    await settle(bench, messenger(bench, store=store), waiting())
    assert store.has_died, "there are fewer saves: try fewer"
    [own] = await made(bench)
    assert await slots(bench, CHANNEL) == ["INC-7/card"]
    assert await slots(bench, own["id"]) == THREAD


@pytest.mark.parametrize("kind", ["lost_reply", "drop", "500", "429"])
@pytest.mark.parametrize("method", ["conversations.create", "conversations.setTopic", "conversations.invite"])
async def test_slack_away_in_the_middle_leaves_one_whole_channel(bench: Bench, method: str, kind: str) -> None:
    await bench.slack.faults({"method": method, "kind": kind})
    await settle(bench, messenger(bench), waiting())
    [own] = await made(bench)
    assert own["num_members"] == 5
    assert await slots(bench, own["id"]) == THREAD


async def test_a_name_that_somebody_else_took_gives_way_to_the_next(bench: Bench) -> None:
    await bench.slack.faults({"method": "conversations.create", "kind": "error:name_taken"})
    await settle(bench, messenger(bench), waiting())
    assert [own["name"] for own in await made(bench)] == [names_of(waiting(), "tests")[1]]


async def test_where_slack_refuses_channels_the_thread_serves_and_the_error_is_raised_once(bench: Bench) -> None:
    await bench.slack.faults({"method": "conversations.create", "kind": "error:restricted_action"})
    speaker = messenger(bench)
    with pytest.raises(PartlyShownError) as partly:
        await speaker.show(waiting())
    assert partly.value.events
    assert [message.get("thread_ts") is not None for message in await bench.slack.messages()][1:] == [True, True]
    posted = waiting().with_(in_slack=InSlack(card_posted=True))
    with pytest.raises(MessengerError, match="restricted_action") as refused:
        await speaker.show(posted)
    assert refused.value.lasting
    assert (await speaker.show(posted)).events == []
    assert len(await bench.slack.calls("conversations.create")) == 1


async def test_an_incident_that_began_in_its_thread_stays_there(bench: Bench) -> None:
    await settle(bench, bench.messenger, waiting())
    await settle(bench, messenger(bench), waiting())
    assert await made(bench) == []


async def test_a_file_comes_into_the_channel(bench: Bench) -> None:
    speaker = messenger(bench)
    await settle(bench, speaker, waiting())
    await speaker.upload(waiting(), key="k", name="way.png", content=file_of(b"x"), comment="the way")
    [own] = await made(bench)
    newest = (await bench.client.conversations_history(channel=own["id"]))["messages"][0]
    assert [file["name"] for file in newest["files"]] == ["way.png"]


async def test_a_channel_is_archived_only_once_its_timeline_is_in_it_and_only_if_wanted(bench: Bench) -> None:
    for rules, archived in ((WANTED, False), (ARCHIVING, True)):
        await bench.slack.do("reset")
        store = MemoryShownStore()
        speaker = messenger(bench, rules, store)
        await settle(bench, speaker, waiting())
        await speaker.upload(waiting(), key="chart", name="INC-7-chart.png", content=file_of(b"x"), comment="so far")
        done = waiting().with_(closed_at=BEGAN + 900, ending="fixed")
        await settle(bench, speaker, done)
        assert [own["is_archived"] for own in await made(bench)] == [False]
        await speaker.upload(
            done, key="export/closed", name="INC-7-timeline.md", content=file_of(b"x"), comment="timeline"
        )
        assert [own["is_archived"] for own in await made(bench)] == [archived]


async def test_a_channel_without_a_file_is_archived_with_the_closing_message(bench: Bench) -> None:
    speaker = messenger(bench, ARCHIVING)
    await settle(bench, speaker, run())
    done = run(ending="not_applicable", closed_at=BEGAN + 9)
    await settle(bench, speaker, done)
    assert [own["is_archived"] for own in await made(bench)] == [False]
    data = {"ending": "not_applicable", "text": "The workload that the alert names is not there."}
    last = Post(slot="closed:1", kind="closed", ref="", at=BEGAN + 9, data=data)
    await settle(bench, speaker, done.with_(posts=(last,)))
    assert [own["is_archived"] for own in await made(bench)] == [True]


async def test_what_comes_after_the_archive_goes_below_the_card(bench: Bench) -> None:
    speaker = messenger(bench, ARCHIVING)
    done = waiting().with_(closed_at=BEGAN + 900, ending="fixed")
    await settle(bench, speaker, waiting())
    await settle(bench, speaker, done)
    await speaker.upload(done, key="export/closed", name="INC-7-timeline.md", content=file_of(b"x"), comment="timeline")
    reopened = waiting(status="expired").with_(
        posts=(*waiting().posts, waiting().posts[0].model_copy(update={"slot": "diagnostics:9"}))
    )
    await settle(bench, speaker, reopened)
    below = [m for m in await bench.slack.messages() if m.get("thread_ts", m["ts"]) != m["ts"]]
    assert [m["metadata"]["event_payload"]["slot"] for m in below] == ["INC-7/diagnostics:9"]
    assert len(await made(bench)) == 1


@pytest.mark.fast
@pytest.mark.parametrize("name", ["llm", "LLM.v2_Größe", "日本語", "x" * 300, "a--b", "<!channel>"])
def test_every_name_is_one_that_slack_takes(name: str) -> None:
    shown = run(target=Target(cluster="c", namespace="n", name=name))
    names = names_of(shown, "bot")
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,79}", each) for each in names), names
    assert names != names_of(shown.with_(opened_at=shown.opened_at + 1), "bot")
    assert names != names_of(shown, "another-bot")


@pytest.mark.fast
@pytest.mark.parametrize("text", ["x" * 4_000, "<!channel> <https://evil.test|ok> @here \u202e"])
def test_a_topic_is_short_and_harmless(text: str) -> None:
    topic = topic_of(run(title=text, target=Target(cluster="c", namespace="n", name=text)))
    assert len(topic) <= 250
    assert not re.search("[<>\u202e]|@here", topic)


@pytest.mark.fast
def test_a_channel_is_an_incidents_own_where_its_card_stands_elsewhere() -> None:
    assert own_channels(run(in_slack=InSlack(places=PLACES))) == {"C0MADE2"}
    assert own_channels(run(in_slack=InSlack(places={CARD: (CHANNEL, "1.1")}))) == set()
    assert own_channels(run()) == set()


async def test_a_command_in_the_channel_needs_no_name(counter: Counter) -> None:
    counter.inbound.runs = {
        "INC-7": run(in_slack=InSlack(places={CARD: (CHANNEL, "1.1")})),
        "INC-8": run(
            incident_id="INC-8", in_slack=InSlack(places={CARD: ("C0OTHER", "1.2"), "request:R3": (CHANNEL, "2.2")})
        ),
    }
    assert "INC-8" in await counter.say("note the batch run ends at three")
