// One message: author, text or blocks, files, reactions, and what can be done with it.

import { renderBlocks } from "./blocks.js";
import { h, ownPath, svg } from "./dom.js";
import { emoji } from "./emoji.js";
import { ago, mrkdwn } from "./mrkdwn.js";

const COLORS = ["#2f6fdb", "#b4540a", "#8250c4", "#0f7b6c", "#b83280", "#556070", "#9a6700"];
const BOT_FACE = [
  ["rect", { x: 4, y: 8, width: 16, height: 11, rx: 3, fill: "#fff" }],
  ["circle", { cx: 9, cy: 13, r: 1.7, fill: "#3b3f9e" }],
  ["circle", { cx: 15, cy: 13, r: 1.7, fill: "#3b3f9e" }],
  ["path", { d: "M12 8V4.5", stroke: "#fff", "stroke-width": 1.8, "stroke-linecap": "round" }],
  ["circle", { cx: 12, cy: 4, r: 1.6, fill: "#ff9d6e" }],
];

export function avatar(person, bot) {
  if (person.id === bot.id) return h("span", { class: "avatar bot", "aria-hidden": true }, svg("0 0 24 24", BOT_FACE));
  const words = person.real_name.split(" ");
  const initials = words.length > 1 ? words[0][0] + words.at(-1)[0] : words[0].slice(0, 2);
  const number = [...person.id].reduce((sum, character) => sum + character.charCodeAt(0), 0);
  const shown = h("span", { class: "avatar", "aria-hidden": true }, initials.toUpperCase());
  shown.style.background = COLORS[number % COLORS.length];
  return shown;
}

export const seconds = (ts) => Number(ts.split(".")[0]);

export function clockTime(ts) {
  return new Date(seconds(ts) * 1000).toLocaleTimeString([], { hour: "numeric", minute: "2-digit" });
}

// `page` offers people, the acting user, contexts for blocks and the acts on a message.
export function renderMessage(message, page, { channel, isInThread, replies, isContinued }) {
  const person = page.workspace.people.get(message.user) ?? { id: message.user, real_name: message.user };
  const isBot = Boolean(person.is_bot);
  const at = new Date(seconds(message.ts) * 1000);
  const context = page.makeContext({ message, channel, root: () => body });
  const body = h(
    "div",
    { class: "message-body" },
    message.is_ephemeral && h("p", { class: "only-you" }, eye(), "Only visible to you"),
    !isContinued &&
      h(
        "div",
        { class: "byline" },
        h("strong", {}, isBot ? person.name : person.real_name),
        isBot && h("span", { class: "tag" }, "APP"),
        h("time", { class: "when", datetime: at.toISOString(), title: at.toLocaleString() }, clockTime(message.ts)),
        message.edited && h("span", { class: "edited" }, "(edited)"),
      ),
    message.subtype === "thread_broadcast" &&
      !isInThread &&
      h(
        "button",
        { type: "button", class: "link-button", onclick: () => page.openThread(channel, message.thread_ts) },
        "replied to a thread",
      ),
    content(message, context),
    message.files &&
      h(
        "div",
        { class: "files" },
        message.files.map((file) => renderFile(file)),
      ),
    message.reactions?.length && reactions(message, page, channel),
    message.is_ephemeral &&
      h("button", { type: "button", class: "link-button", onclick: () => page.dismiss(message.ts) }, "Dismiss message"),
    !isInThread && replies.length > 0 && threadBar(message, replies, page, channel),
  );
  const gutter = isContinued
    ? h("time", { class: "when gutter", datetime: at.toISOString() }, clockTime(message.ts))
    : avatar(person, page.workspace.bot);
  const classes = `message${message.is_ephemeral ? " ephemeral" : ""}${isContinued ? " continued" : ""}`;
  const tools = message.is_ephemeral ? null : toolbar(message, page, { channel, isInThread });
  return h("article", { class: classes, dataset: { ts: message.ts } }, gutter, body, tools);
}

function eye() {
  return svg("0 0 24 24", [
    [
      "path",
      {
        d: "M2 12s3.700-6.500 10-6.500S22 12 22 12s-3.700 6.500-10 6.500S2 12 2 12z",
        fill: "none",
        stroke: "currentColor",
        "stroke-width": 2,
      },
    ],
    ["circle", { cx: 12, cy: 12, r: 3, fill: "currentColor" }],
  ]);
}

function content(message, context) {
  if (message.blocks?.length) return h("div", { class: "blocks" }, renderBlocks(message.blocks, context));
  return message.text ? h("div", { class: "text" }, mrkdwn(message.text, context.names)) : null;
}

function reactions(message, page, channel) {
  return h(
    "div",
    { class: "reactions" },
    message.reactions.map((reaction) => {
      const isMine = reaction.users.includes(page.me);
      const who = reaction.users.map((id) => page.workspace.people.get(id)?.real_name ?? id).join(", ");
      const press = () => !isMine && page.acts.react({ user: page.me, channel, ts: message.ts, name: reaction.name });
      return h(
        "button",
        { type: "button", class: `reaction${isMine ? " mine" : ""}`, title: who, onclick: press },
        emoji(reaction.name) ?? `:${reaction.name}:`,
        ` ${reaction.count}`,
      );
    }),
  );
}

function threadBar(message, replies, page, channel) {
  const people = [...new Set(replies.map((reply) => reply.user))].slice(0, 4);
  const last = seconds(replies.at(-1).ts);
  const when = h(
    "span",
    { class: "last-reply" },
    "Last reply ",
    h("time", { dataset: { at: last, format: "{ago}" } }, ago(Date.now() / 1000 - last)),
  );
  return h(
    "button",
    { type: "button", class: "thread-bar", onclick: () => page.openThread(channel, message.ts) },
    people.map((id) => avatar(page.workspace.people.get(id) ?? { id, real_name: id }, page.workspace.bot)),
    h("strong", {}, `${replies.length} ${replies.length === 1 ? "reply" : "replies"}`),
    when,
  );
}

function toolbar(message, page, { channel, isInThread }) {
  const where = { user: page.me, channel, ts: message.ts };
  const pin = () => page.acts.react({ ...where, name: "pushpin" });
  return h(
    "div",
    { class: "tools" },
    h(
      "button",
      { type: "button", title: "React with a pushpin", "aria-label": "React with a pushpin", onclick: pin },
      emoji("pushpin"),
    ),
    !isInThread &&
      h(
        "button",
        { type: "button", title: "Reply in thread", onclick: () => page.openThread(channel, message.ts, true) },
        "Reply",
      ),
    page.workspace.shortcuts.map((shortcut) =>
      h(
        "button",
        {
          type: "button",
          title: `Message shortcut: ${shortcut.title}`,
          onclick: () => page.acts.shortcut({ ...where, callback_id: shortcut.callback_id }),
        },
        shortcut.title,
      ),
    ),
  );
}

// -- files ------------------------------------------------------------------------

const PICTURES = /\.(png|jpe?g|gif|webp)$/i;
const TEXTS = /\.(txt|log|md|json|ya?ml|csv|diff|patch)$/i;
const PREVIEW_LINES = 12;

function size(bytes) {
  return bytes < 1024
    ? `${bytes} B`
    : bytes < 1_048_576
      ? `${Math.round(bytes / 1024)} kB`
      : `${(bytes / 1_048_576).toFixed(1)} MB`;
}

function renderFile(file) {
  const address = ownPath(file.url_private);
  const head = h(
    "div",
    { class: "file-head" },
    h("span", { class: "file-kind" }, file.name.split(".").at(-1).slice(0, 4)),
    h(
      "span",
      { class: "file-name" },
      h("strong", {}, file.title || file.name),
      h("small", {}, `${file.name} · ${size(file.size)}`),
    ),
    h("a", { class: "button", href: `${address}?download=1`, download: file.name }, "Download"),
  );
  if (PICTURES.test(file.name)) {
    return h(
      "div",
      { class: "file picture" },
      h("a", { href: address, target: "_blank" }, h("img", { src: address, alt: file.title || file.name })),
      head,
    );
  }
  if (!TEXTS.test(file.name)) return h("div", { class: "file" }, head);
  const preview = h("pre", { class: "file-preview" });
  showPreview(address, preview);
  return h("div", { class: "file" }, head, preview);
}

async function showPreview(address, preview) {
  const response = await fetch(address);
  const lines = (await response.text()).split("\n");
  const short = lines.slice(0, PREVIEW_LINES).join("\n");
  preview.textContent = short;
  if (lines.length <= PREVIEW_LINES) return;
  const all = h("button", { type: "button", class: "link-button" }, `Show all ${lines.length} lines`);
  all.addEventListener("click", () => {
    preview.textContent = lines.join("\n");
    all.remove();
  });
  preview.after(all);
}
