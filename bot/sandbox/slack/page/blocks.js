// Block Kit to elements. What a person does with them goes to `context.press`, never to the bot directly.

import { h, isSafeLink, ownPath } from "./dom.js";
import { EMOJI_CHARACTER, emoji, emojiOfCharacter } from "./emoji.js";
import { mrkdwn, unescapeText } from "./mrkdwn.js";

// A text object. Plain text knows emoji and no other markup.
export function text(object, context) {
  if (!object) return "";
  if (object.type === "mrkdwn") return mrkdwn(object.text, context.names);
  return plainText(object.text);
}

export function plainText(words) {
  const out = document.createDocumentFragment();
  const marks = new RegExp(`:([a-z0-9_+-]+):|${EMOJI_CHARACTER.source}`, "gu");
  let last = 0;
  for (const match of words.matchAll(marks)) {
    const picture = match[1] ? emoji(match[1]) : emojiOfCharacter(match[0]);
    if (!picture) continue;
    out.append(unescapeText(words.slice(last, match.index)), picture);
    last = match.index + match[0].length;
  }
  out.append(unescapeText(words.slice(last)));
  return out;
}

export function renderBlocks(blocks, context) {
  return blocks.map((block) => {
    const build = BLOCKS[block.type];
    return build ? build(block, context) : h("div", { class: "block unknown" }, `[${block.type}]`);
  });
}

const BLOCKS = {
  header: (block) => h("h3", { class: "block header" }, plainText(block.text.text)),
  divider: () => h("hr", { class: "block" }),
  section: (block, context) =>
    h(
      "div",
      { class: `block section${block.accessory ? " with-accessory" : ""}` },
      h(
        "div",
        { class: "section-body" },
        block.text && h("div", { class: "text" }, text(block.text, context)),
        block.fields &&
          h(
            "div",
            { class: "fields" },
            block.fields.map((field) => h("div", { class: "text" }, text(field, context))),
          ),
      ),
      block.accessory && h("div", { class: "accessory" }, renderElement(block.accessory, block, context)),
    ),
  context: (block, context) =>
    h(
      "div",
      { class: "block context" },
      block.elements.map((part) =>
        part.type === "image" ? image(part, "context-image") : h("span", {}, text(part, context)),
      ),
    ),
  actions: (block, context) =>
    h(
      "div",
      { class: "block actions" },
      block.elements.map((element) => renderElement(element, block, context)),
    ),
  image: (block) =>
    h(
      "figure",
      { class: "block image" },
      block.title && h("figcaption", {}, plainText(block.title.text)),
      image(block, ""),
    ),
  input: (block, context) =>
    h(
      "div",
      { class: "block input", dataset: { block: block.block_id } },
      h(
        "label",
        {},
        plainText(block.label.text),
        block.optional && h("span", { class: "optional" }, " (optional)"),
        renderElement(block.element, block, context),
      ),
      block.hint && h("p", { class: "hint" }, plainText(block.hint.text)),
      h("p", { class: "field-error", role: "alert", hidden: true }),
    ),
  rich_text: (block, context) =>
    h(
      "div",
      { class: "block text" },
      block.elements.map((part) => richPart(part, context)),
    ),
};

function image(block, kind) {
  const address = block.slack_file ? ownPath(block.slack_file.url) : isSafeLink(block.image_url) ? block.image_url : "";
  return h("img", { class: kind, src: address, alt: block.alt_text, loading: "lazy" });
}

function richPart(part, context) {
  if (part.type === "rich_text_list") {
    const items = part.elements.map((item) => h("li", {}, richPart(item, context)));
    return h(part.style === "ordered" ? "ol" : "ul", {}, items);
  }
  const inside = part.elements.map((element) => richElement(element, context));
  if (part.type === "rich_text_preformatted") return h("pre", {}, h("code", {}, inside));
  return h(part.type === "rich_text_quote" ? "blockquote" : "div", {}, inside);
}

function richElement(element, { names }) {
  if (element.type === "text") {
    const tag = element.style?.code ? "code" : element.style?.bold ? "strong" : element.style?.italic ? "em" : "span";
    return h(tag, { class: tag === "span" ? "rich" : undefined }, element.text);
  }
  if (element.type === "link" && isSafeLink(element.url))
    return h("a", { href: element.url, target: "_blank", rel: "noopener noreferrer" }, element.text ?? element.url);
  if (element.type === "user") return mrkdwn(`<@${element.user_id}>`, names);
  if (element.type === "usergroup") return mrkdwn(`<!subteam^${element.usergroup_id}>`, names);
  if (element.type === "channel") return mrkdwn(`<#${element.channel_id}>`, names);
  if (element.type === "emoji") return emoji(element.name) ?? `:${element.name}:`;
  return element.text ?? element.fallback ?? "";
}

// -- interactive elements -------------------------------------------------------

// Whether a choice is sent at once: everywhere but in an input block that did not ask for it.
const isSentAtOnce = (block) => block.type !== "input" || block.dispatch_action;

export function renderElement(element, block, context) {
  const build = ELEMENTS[element.type];
  if (!build) return h("span", { class: "unknown" }, `[${element.type}]`);
  const shown = build(element, block, context);
  shown.dataset.block ??= block.block_id;
  shown.dataset.action = element.action_id;
  return shown;
}

const ELEMENTS = {
  image: (element) => image(element, "accessory-image"),
  button: (element, block, context) => {
    const button = h(
      "button",
      { type: "button", class: `button ${element.style ?? ""}`, "aria-label": element.accessibility_label },
      plainText(element.text.text),
    );
    button.addEventListener("click", async () => {
      if (element.confirm && !(await context.confirm(element.confirm))) return;
      if (element.url && isSafeLink(element.url)) window.open(element.url, "_blank", "noopener");
      await context.press({ element, block, value: element.value, control: button });
    });
    return button;
  },
  overflow: (element, block, context) => {
    const list = h("div", { class: "menu", role: "menu", hidden: true });
    const opener = h(
      "button",
      { type: "button", class: "button overflow-opener", "aria-label": "More", "aria-haspopup": "menu" },
      "⋯",
    );
    opener.addEventListener("click", (event) => {
      event.stopPropagation();
      list.hidden = !list.hidden;
      if (list.hidden) return;
      placeMenu(list, opener);
      document.addEventListener("click", () => (list.hidden = true), { once: true });
      list.closest(".messages, .modal-body")?.addEventListener("scroll", () => (list.hidden = true), { once: true });
    });
    for (const option of element.options) {
      const choose = async () => {
        if (element.confirm && !(await context.confirm(element.confirm))) return;
        if (option.url && isSafeLink(option.url)) window.open(option.url, "_blank", "noopener");
        await context.press({ element, block, value: option.value, control: opener });
      };
      list.append(h("button", { type: "button", role: "menuitem", onclick: choose }, plainText(option.text.text)));
    }
    return h("span", { class: "overflow" }, opener, list);
  },
  static_select: (element, block, context) => {
    const options = element.options.map((option) => ({ value: option.value, label: unescapeText(option.text.text) }));
    return select(element, block, context, options, element.initial_option?.value);
  },
  users_select: (element, block, context) =>
    select(element, block, context, context.names.people(), element.initial_user),
  radio_buttons: (element, block, context) =>
    choices("radio", element, block, context, [element.initial_option?.value]),
  checkboxes: (element, block, context) =>
    choices(
      "checkbox",
      element,
      block,
      context,
      (element.initial_options ?? []).map((option) => option.value),
    ),
  plain_text_input: (element, block, context) => {
    const common = {
      placeholder: element.placeholder && unescapeText(element.placeholder.text),
      maxlength: element.max_length,
      autofocus: element.focus_on_load,
      value: element.initial_value ?? "",
    };
    const field = element.multiline ? h("textarea", { rows: 4, ...common }) : h("input", { type: "text", ...common });
    return typed(field, element, block, context);
  },
  number_input: (element, block, context) => {
    const field = h("input", {
      type: "number",
      min: element.min_value,
      max: element.max_value,
      step: element.is_decimal_allowed ? "any" : "1",
      placeholder: element.placeholder && unescapeText(element.placeholder.text),
      value: element.initial_value ?? "",
    });
    return typed(field, element, block, context);
  },
};

// Under its button, or above it where there is no room; never beyond an edge of the window.
function placeMenu(list, opener) {
  const at = opener.getBoundingClientRect();
  const below = at.bottom + 4;
  const top = below + list.offsetHeight < innerHeight ? below : at.top - 4 - list.offsetHeight;
  list.style.top = `${Math.max(top, 4)}px`;
  list.style.left = `${Math.max(Math.min(at.left, innerWidth - list.offsetWidth - 8), 8)}px`;
}

function typed(field, element, block, context) {
  field.read = () => field.value;
  field.write = (value) => (field.value = value ?? "");
  if (isSentAtOnce(block)) {
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || field.tagName === "TEXTAREA") return;
      event.preventDefault();
      context.press({ element, block, value: field.value, control: field });
    });
  }
  return field;
}

function select(element, block, context, options, initial) {
  const placeholder = h(
    "option",
    { value: "", disabled: true },
    element.placeholder ? unescapeText(element.placeholder.text) : "Choose…",
  );
  const field = h(
    "select",
    {},
    placeholder,
    options.map((option) => h("option", { value: option.value }, option.label)),
  );
  field.value = initial ?? "";
  field.read = () => field.value || null;
  field.write = (value) => (field.value = value ?? "");
  if (isSentAtOnce(block)) {
    field.addEventListener("change", async () => {
      if (element.confirm && !(await context.confirm(element.confirm))) return;
      await context.press({ element, block, value: field.value, control: field });
    });
  }
  return field;
}

let groupNumber = 0;

function choices(type, element, block, context, initial) {
  groupNumber += 1;
  const boxes = element.options.map((option) =>
    h("input", { type, name: `choice-${groupNumber}`, value: option.value, checked: initial.includes(option.value) }),
  );
  const labels = element.options.map((option, index) =>
    h(
      "label",
      { class: "choice" },
      boxes[index],
      h(
        "span",
        {},
        text(option.text, context),
        option.description && h("small", {}, text(option.description, context)),
      ),
    ),
  );
  const field = h("div", { class: "choices", role: type === "radio" ? "radiogroup" : "group" }, labels);
  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.value);
  field.read = () => (type === "radio" ? (chosen()[0] ?? null) : chosen());
  field.write = (value) => boxes.forEach((box) => (box.checked = [value].flat().includes(box.value)));
  if (isSentAtOnce(block)) {
    field.addEventListener("change", () => context.press({ element, block, value: field.read(), control: field }));
  }
  return field;
}

// Put back what was typed or chosen into the fields that are still there.
export function restoreValues(root, values) {
  for (const field of root.querySelectorAll("[data-action]")) {
    const block = values[field.dataset.block];
    if (field.write && block && field.dataset.action in block) field.write(block[field.dataset.action]);
  }
}

// What stands in every field under `root`, as `{block_id: {action_id: choice}}`.
export function valuesIn(root) {
  const values = {};
  for (const field of root.querySelectorAll("[data-action]")) {
    if (!field.read) continue;
    (values[field.dataset.block] ??= {})[field.dataset.action] = field.read();
  }
  return values;
}
