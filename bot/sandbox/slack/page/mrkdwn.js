// Slack's mrkdwn to elements: escapes, links, mentions, dates, code, quotes, emphasis, emoji.

import { h, isSafeLink } from "./dom.js";
import { EMOJI_CHARACTER, emoji, emojiOfCharacter } from "./emoji.js";

export function unescapeText(text) {
  return text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
}

// `names` finds people, groups and channels by id.
export function mrkdwn(text, names) {
  const out = document.createDocumentFragment();
  text.split("```").forEach((part, index, parts) => {
    const isCode = index % 2 === 1 && index < parts.length - 1;
    if (isCode) out.append(h("pre", {}, h("code", {}, unescapeText(part.replace(/^\n|\n$/g, "")))));
    else if (index % 2 === 1) paragraphs(`\`\`\`${part}`, names, out);
    else paragraphs(index > 0 ? part.replace(/^\n/, "") : part, names, out);
  });
  return out;
}

function paragraphs(text, names, out) {
  if (!text) return;
  const lines = text.split("\n");
  for (let at = 0; at < lines.length;) {
    const isQuote = /^(>|&gt;)/.test(lines[at]);
    const from = at;
    while (at < lines.length && /^(>|&gt;)/.test(lines[at]) === isQuote) at += 1;
    const run = lines.slice(from, at).map((line) => (isQuote ? line.replace(/^(>|&gt;) ?/, "") : line));
    // A quote stands apart by itself; the empty line after it would double the gap.
    if (from > 0 && !isQuote && run.length > 1 && run[0] === "") run.shift();
    const target = isQuote ? h("blockquote") : out;
    run.forEach((line, index) => {
      if (index > 0) target.append(h("br"));
      inline(line, names, target);
    });
    if (isQuote) out.append(target);
    else if (at < lines.length && run.at(-1) === "") out.append(h("br"));
  }
}

const RULES = [
  [/<([^<>\n]+)>/u, (match, names) => reference(match[1], names) ?? unescapeText(match[0])],
  [/`([^`\n]+)`/u, (match) => h("code", {}, unescapeText(match[1]))],
  [/(?<![\p{L}\p{N}*])\*(\S(?:[^\n]*?\S)??)\*(?![\p{L}\p{N}*])/u, (match, names) => around("strong", match[1], names)],
  [/(?<![\p{L}\p{N}_])_(\S(?:[^\n]*?\S)??)_(?![\p{L}\p{N}_])/u, (match, names) => around("em", match[1], names)],
  [/(?<![\p{L}\p{N}~])~(\S(?:[^\n]*?\S)??)~(?![\p{L}\p{N}~])/u, (match, names) => around("s", match[1], names)],
  [/:([a-z0-9_+-]+):/u, (match) => emoji(match[1])],
  [EMOJI_CHARACTER, (match) => emojiOfCharacter(match[0])],
];

function around(tag, text, names) {
  const element = h(tag);
  inline(text, names, element);
  return element;
}

function inline(text, names, out) {
  let rest = text;
  while (rest) {
    const found = earliest(rest, names);
    if (!found) break;
    if (found.index > 0) out.append(unescapeText(rest.slice(0, found.index)));
    out.append(found.element);
    rest = rest.slice(found.index + found.length);
  }
  if (rest) out.append(unescapeText(rest));
}

function earliest(text, names) {
  let best = null;
  for (const [pattern, build] of RULES) {
    const match = pattern.exec(text);
    if (match && (!best || match.index < best.match.index)) best = { match, build };
  }
  if (!best) return null;
  const element = best.build(best.match, names) ?? best.match[0];
  return { index: best.match.index, length: best.match[0].length, element };
}

function reference(inside, names) {
  const [target, ...labels] = inside.split("|");
  const label = unescapeText(labels.join("|"));
  if (target.startsWith("!date^")) return date(target, label, names);
  if (target.startsWith("!subteam^"))
    return mention(`@${names.group(target.slice(9)) ?? (label || target.slice(9))}`, "group");
  if (/^!(channel|here|everyone)$/.test(target)) return mention(`@${target.slice(1)}`, "loud");
  if (target.startsWith("@"))
    return mention(
      `@${names.person(target.slice(1)) ?? (label || target.slice(1))}`,
      names.isMe(target.slice(1)) ? "me" : "",
    );
  if (target.startsWith("#")) return channelMention(target.slice(1), label, names);
  const address = unescapeText(target);
  if (!isSafeLink(address)) return null;
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, label || address);
}

function mention(text, kind) {
  return h("span", { class: `mention ${kind}` }, text);
}

// A click on one that can be seen leads there.
function channelMention(id, label, names) {
  const name = names.channel(id);
  const shown = mention(`#${name ?? (label || id)}`, "");
  if (!name) return shown;
  shown.dataset.place = id;
  shown.tabIndex = 0;
  shown.setAttribute("role", "link");
  return shown;
}

function date(target, fallback, names) {
  const [, seconds, format, link] = target.split("^");
  const at = Number(seconds);
  if (!Number.isFinite(at) || !format) return fallback;
  const shown = h("time", { datetime: new Date(at * 1000).toISOString(), title: new Date(at * 1000).toLocaleString() });
  shown.dataset.at = at;
  shown.dataset.format = unescapeText(format);
  shown.textContent = formatDate(at, shown.dataset.format);
  return link && isSafeLink(link) ? h("a", { href: link, target: "_blank", rel: "noopener noreferrer" }, shown) : shown;
}

function ordinal(day) {
  const isTeen = day > 10 && day < 14;
  return `${day}${(isTeen ? "" : { 1: "st", 2: "nd", 3: "rd" }[day % 10]) || "th"}`;
}

const part = (at, options) => new Intl.DateTimeFormat("en-US", options).format(at);

function prettily(at, otherwise) {
  const day = (moment) => new Date(moment.getFullYear(), moment.getMonth(), moment.getDate()).getTime();
  const days = Math.round((day(at) - day(new Date())) / 86_400_000);
  return { 0: "today", 1: "tomorrow", [-1]: "yesterday" }[days] ?? otherwise;
}

export function ago(seconds) {
  const size = Math.abs(seconds);
  const [amount, unit] =
    size < 60
      ? [Math.round(size), "second"]
      : size < 3570
        ? [Math.round(size / 60), "minute"]
        : size < 86_400
          ? [Math.round(size / 3600), "hour"]
          : [Math.round(size / 86_400), "day"];
  const words = `${amount} ${unit}${amount === 1 ? "" : "s"}`;
  return seconds >= 0 ? `${words} ago` : `in ${words}`;
}

export function formatDate(seconds, format) {
  const at = new Date(seconds * 1000);
  const long = `${part(at, { month: "long" })} ${ordinal(at.getDate())}, ${at.getFullYear()}`;
  const short = part(at, { month: "short", day: "numeric", year: "numeric" });
  const longest = `${part(at, { weekday: "long" })}, ${long}`;
  const two = (number) => String(number).padStart(2, "0");
  const tokens = {
    date_num: `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`,
    date_slash: `${two(at.getMonth() + 1)}/${two(at.getDate())}/${at.getFullYear()}`,
    date: long,
    date_short: short,
    date_long: longest,
    date_pretty: prettily(at, long),
    date_short_pretty: prettily(at, short),
    date_long_pretty: prettily(at, longest),
    time: at.toLocaleTimeString([], { hour: "numeric", minute: "2-digit" }),
    time_secs: at.toLocaleTimeString([], { hour: "numeric", minute: "2-digit", second: "2-digit" }),
    ago: ago(Date.now() / 1000 - seconds),
  };
  return format.replace(/\{(\w+)\}/g, (whole, name) => tokens[name] ?? whole);
}

// Keep "3 minutes ago" true while the page is open.
export function refreshDates(root = document) {
  for (const shown of root.querySelectorAll("time[data-format]")) {
    const text = formatDate(Number(shown.dataset.at), shown.dataset.format);
    if (text !== shown.textContent) shown.textContent = text;
  }
}
