// The page: draws what the workspace holds, for one acting person, and hands that person's acts on.

import { renderBlocks, valuesIn } from "./blocks.js";
import { composer } from "./composer.js";
import { Modals, confirmDialog, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { avatar, renderMessage, seconds } from "./message.js";
import { MessageList } from "./message_list.js";
import { refreshDates } from "./mrkdwn.js";
import { Workspace, act } from "./workspace.js";

const CAST = ["U0ANA", "U0BEN", "U0LEA", "U0MO"];
const HOME = "home";
// As in Slack, nobody is told that an event did not reach the bot, and a modal shows its own trouble.
const SHOWS_FAILURE = new Set(["press", "command", "shortcut", "close"]);
const CONTINUED_SECONDS = 180;
const WIDE = 1100;
const $ = (id) => document.getElementById(id);

const page = {
  me: new URLSearchParams(location.search).get("as") ?? sessionStorage.getItem("me") ?? CAST[0],
  place: "C0INC",
  thread: null, // {channel, ts}
  isFollowing: true, // open the newest card's thread by itself, until the person chooses another
  unread: new Set(),
  workspace: null,
  openThread,
  dismiss(ts) {
    page.workspace.dismissed.add(ts);
    draw();
  },
};

async function tell(name, body) {
  const answer = await act(name, body);
  if (!answer.ok && answer.shown && SHOWS_FAILURE.has(name)) toast(answer.shown);
  return answer;
}

page.acts = Object.fromEntries(
  ["press", "submit", "close", "react", "shortcut", "say", "command", "home"].map((name) => [
    name,
    (body) => tell(name, body),
  ]),
);

const names = {
  person: (id) => {
    const person = page.workspace.people.get(id);
    return person && (person.is_bot ? person.name : person.real_name);
  },
  group: (id) => page.workspace.groups.get(id)?.handle,
  channel: (id) => page.workspace.channels.get(id)?.name,
  isMe: (id) => id === page.me,
  people: () =>
    [...page.workspace.people.values()]
      .filter((p) => !p.deleted && !p.is_bot)
      .map((p) => ({ value: p.id, label: p.real_name })),
};

// What blocks need of the page around them. `root` is the element that holds the blocks.
page.makeContext = ({ message, channel, view, root }) => ({
  names,
  confirm: (question) => confirmDialog(question, { names }),
  press: async ({ element, block, value, control }) => {
    const where = view ? { view_id: view.id } : { channel, ts: message.ts, stale: true };
    control.classList.add("waiting");
    control.setAttribute("aria-busy", "true");
    await page.acts.press({
      user: page.me,
      ...where,
      block_id: block.block_id,
      action_id: element.action_id,
      value,
      values: valuesIn(root()),
    });
    control.classList.remove("waiting");
    control.removeAttribute("aria-busy");
  },
});

// -- drawing ------------------------------------------------------------------------

const channelList = new MessageList($("messages"));
const threadList = new MessageList($("thread-messages"));

function dayName(ts) {
  const day = new Date(seconds(ts) * 1000);
  const today = new Date();
  if (day.toDateString() === today.toDateString()) return "Today";
  today.setDate(today.getDate() - 1);
  if (day.toDateString() === today.toDateString()) return "Yesterday";
  return day.toLocaleDateString([], { weekday: "long", month: "long", day: "numeric" });
}

const divider = (key, words) => ({
  key,
  signature: words,
  build: () => h("div", { class: "divider" }, h("span", {}, words)),
});

function messageEntries(messages, { channel, isInThread }) {
  const entries = [];
  let before = null;
  for (const message of messages) {
    if (!isInThread && (!before || dayName(before.ts) !== dayName(message.ts))) {
      entries.push(divider(`day ${dayName(message.ts)}`, dayName(message.ts)));
      before = null;
    }
    const replies = isInThread ? [] : page.workspace.replies(channel, message.ts);
    const isContinued = Boolean(
      before &&
      before.user === message.user &&
      !before.is_ephemeral &&
      !message.is_ephemeral &&
      !message.blocks &&
      !before.blocks &&
      !before.files &&
      seconds(message.ts) - seconds(before.ts) < CONTINUED_SECONDS,
    );
    const signature = JSON.stringify([message, replies.length, replies.at(-1)?.ts, isContinued, page.me]);
    entries.push({
      key: message.ts,
      signature,
      build: () => renderMessage(message, page, { channel, isInThread, replies, isContinued }),
    });
    before = message;
  }
  return entries;
}

function drawChannel() {
  const isHome = page.place === HOME;
  const channel = page.workspace.channels.get(page.place);
  $("channel-name").textContent = isHome ? page.workspace.bot.name : `# ${channel.name}`;
  $("channel-topic").textContent = isHome ? "Home" : channel.topic.value;
  document.title = isHome ? page.workspace.bot.name : `#${channel.name} · Sandbox`;
  $("composer").hidden = isHome;
  if (isHome) return drawHome();
  const messages = page.workspace.channelMessages(page.place, page.me);
  const entries = messageEntries(messages, { channel: page.place, isInThread: false });
  const welcome = {
    key: "welcome",
    signature: page.place,
    build: () =>
      h(
        "div",
        { class: "welcome" },
        h("h2", {}, `# ${channel.name}`),
        h("p", {}, `This is the beginning of the channel. ${channel.topic.value}.`),
      ),
  };
  channelList.show([welcome, ...entries]);
}

function drawHome() {
  const view = page.workspace.homes[page.me];
  const build = () => {
    const host = h("div", { class: "home" });
    if (!view) host.append(h("p", { class: "empty" }, "The bot has not published a Home tab for this person yet."));
    else
      host.append(
        h("div", { class: "blocks" }, renderBlocks(view.blocks, page.makeContext({ view, root: () => host }))),
      );
    return host;
  };
  channelList.show([{ key: "home", signature: `${page.me} ${view?.hash}`, build }]);
}

function drawThread() {
  const pane = $("thread");
  const root = page.thread && page.workspace.ofChannel(page.thread.channel).get(page.thread.ts);
  const isOpen = Boolean(root) && page.place === page.thread.channel;
  pane.hidden = !isOpen;
  $("app").classList.toggle("has-thread", isOpen);
  if (!isOpen) return;
  const { channel, ts } = page.thread;
  $("thread-where").textContent = `# ${page.workspace.channels.get(channel).name}`;
  const replies = page.workspace.threadMessages(channel, ts, page.me);
  const count = page.workspace.replies(channel, ts).length;
  const words = count === 0 ? "No replies yet" : `${count} ${count === 1 ? "reply" : "replies"}`;
  const [first, ...rest] = messageEntries([root, ...replies], { channel, isInThread: true });
  threadList.show([first, divider(`count ${ts}`, words), ...rest]);
}

function drawSidebar() {
  const { workspace } = page;
  const entry = (place, label, mark) =>
    h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: `${page.place === place ? "current" : ""} ${page.unread.has(place) ? "unread" : ""}`,
          "aria-current": page.place === place ? "page" : undefined,
          onclick: () => go(place),
        },
        mark,
        label,
      ),
    );
  $("channels").replaceChildren(
    ...[...workspace.channels.values()].filter((channel) => !channel.is_archived).map((channel) =>
      entry(channel.id, channel.name, h("span", { class: "hash" }, "#")),
    ),
  );
  $("apps").replaceChildren(
    entry(HOME, workspace.bot.name, avatar(workspace.people.get(workspace.bot.id), workspace.bot)),
  );
  $("people").replaceChildren(
    ...CAST.map((id) => {
      const person = workspace.people.get(id);
      const label = h("span", {}, person.real_name, h("small", {}, person.profile.title));
      return h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            role: "radio",
            "aria-checked": String(id === page.me),
            class: id === page.me ? "current" : "",
            onclick: () => become(id),
          },
          avatar(person, workspace.bot),
          label,
        ),
      );
    }),
  );
}

const modals = new Modals(page.acts, page.makeContext);

function draw() {
  if (!page.workspace.isLoaded) return;
  drawSidebar();
  drawChannel();
  drawThread();
  modals.show(page.me, page.workspace.views[page.me] ?? []);
}

let isDrawPending = false;
function drawSoon() {
  if (isDrawPending) return;
  isDrawPending = true;
  setTimeout(() => {
    isDrawPending = false;
    draw();
  }, 16);
}

// -- moving about ---------------------------------------------------------------------

function go(place) {
  page.place = place;
  page.unread.delete(place);
  if (place === HOME) page.acts.home({ user: page.me });
  draw();
  channelList.toEnd();
}

function become(user) {
  page.me = user;
  sessionStorage.setItem("me", user);
  if (page.place === HOME) page.acts.home({ user });
  draw();
}

function openThread(channel, ts, isReplying = false) {
  page.thread = { channel, ts };
  page.isFollowing = ts === newestCard(channel)?.ts;
  drawThread();
  threadList.toEnd();
  if (isReplying) threadBox.focus();
}

// The newest message of the bot that stands in the channel itself.
function newestCard(channel) {
  const cards = [...page.workspace.ofChannel(channel).values()].filter(
    (m) => m.user === page.workspace.bot.id && (m.thread_ts ?? m.ts) === m.ts && m.blocks,
  );
  return cards.at(-1);
}

// Not while somebody writes a reply: it would go to the wrong thread.
function followNewestCard() {
  if (!page.isFollowing || page.place === HOME || window.innerWidth < WIDE || threadBox.isInUse()) return;
  const card = newestCard(page.place);
  if (!card || page.thread?.ts === card.ts || page.workspace.replies(page.place, card.ts).length === 0) return;
  page.thread = { channel: page.place, ts: card.ts };
  drawThread();
  threadList.toEnd();
}

function changed(change) {
  if (change.kind === "message" && change.channel !== page.place) page.unread.add(change.channel);
  if (change.kind === "reset") page.thread = null;
  if (
    change.kind === "message" &&
    !change.message.thread_ts &&
    change.message.user === page.workspace.bot.id &&
    !change.message.edited
  )
    page.isFollowing = true;
  if (change.kind === "loaded") {
    followNewestCard();
    draw();
    channelList.toEnd();
    threadList.toEnd();
    showPermalink(location.pathname);
    return;
  }
  followNewestCard();
  drawSoon();
}

// -- permalinks ---------------------------------------------------------------------------

// Shows the message of a permalink's path: in the channel, or in its thread where it is a reply.
function showPermalink(path) {
  const [, channel, whole, micro] = /^\/archives\/(\w+)\/p(\d+)(\d{6})$/.exec(path) ?? [];
  const message = channel && page.workspace.ofChannel(channel).get(`${whole}.${micro}`);
  if (!message) return;
  page.place = channel;
  draw();
  const isReply = message.thread_ts && message.thread_ts !== message.ts;
  if (isReply) openThread(channel, message.thread_ts);
  (isReply ? threadList : channelList).point(message.ts);
}

document.addEventListener("click", (event) => {
  const mentioned = event.target.closest?.(".mention[data-place]");
  if (mentioned) return go(mentioned.dataset.place);
  const link = event.target.closest?.("a");
  if (link?.origin !== location.origin || !link.pathname.startsWith("/archives/")) return;
  event.preventDefault();
  showPermalink(link.pathname);
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches?.(".mention[data-place]")) go(event.target.dataset.place);
});

$("thread-close").addEventListener("click", () => {
  page.thread = null;
  page.isFollowing = false;
  drawThread();
});

// -- writing ----------------------------------------------------------------------------

async function sendToChannel(words) {
  channelList.toEnd();
  if (!words.startsWith("/"))
    return page.acts.say({ user: page.me, channel: page.place, text: escapeText(words) }).then(() => true);
  const [command] = words.split(/\s/, 1);
  const answer = await page.acts.command({
    user: page.me,
    channel: page.place,
    command,
    text: words.slice(command.length).trim(),
  });
  return answer.ok;
}

async function sendToThread(words) {
  if (words.startsWith("/")) {
    toast("Slash commands cannot be used in threads.");
    return false;
  }
  await page.acts.say({
    user: page.me,
    channel: page.thread.channel,
    text: escapeText(words),
    thread_ts: page.thread.ts,
  });
  threadList.toEnd();
  return true;
}

function escapeText(words) {
  return words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

const channelBox = composer($("composer"), {
  placeholder: "Message, or / for a command",
  commands: () => page.workspace.commands,
  send: sendToChannel,
});
const threadBox = composer($("thread-composer"), { placeholder: "Reply…", commands: () => [], send: sendToThread });

page.workspace = new Workspace(changed, (isConnected) => ($("connection").hidden = isConnected));
page.workspace.connect();
setInterval(refreshDates, 5000);
