// Modals that a bot opened, confirmations, and toasts.

import { plainText, renderBlocks, restoreValues, text, valuesIn } from "./blocks.js";
import { h } from "./dom.js";

export function toast(words, kind = "error") {
  const shown = h("div", { class: `toast ${kind}` }, words);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), 7000);
}

// What Escape closes: the last dialog opened that is still there.
const escapes = [];

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  while (escapes.length > 0 && !escapes.at(-1).dialog.isConnected) escapes.pop();
  escapes.at(-1)?.close();
});

// Resolves to whether the person agreed.
export function confirmDialog(confirm, context) {
  return new Promise((resolve) => {
    const answer = (agreed) => {
      backdrop.remove();
      resolve(agreed);
    };
    const agree = h(
      "button",
      {
        type: "button",
        class: `button ${confirm.style === "danger" ? "danger solid" : "primary"}`,
        onclick: () => answer(true),
      },
      plainText(confirm.confirm.text),
    );
    const dialog = h(
      "div",
      { class: "modal small", role: "alertdialog", "aria-modal": "true", "aria-label": confirm.title.text },
      h("header", {}, h("h2", {}, plainText(confirm.title.text))),
      h("div", { class: "modal-body" }, h("div", { class: "text" }, text(confirm.text, context))),
      h(
        "footer",
        {},
        h("button", { type: "button", class: "button", onclick: () => answer(false) }, plainText(confirm.deny.text)),
        agree,
      ),
    );
    const backdrop = h("div", { class: "backdrop confirm" }, dialog);
    escapes.push({ dialog: backdrop, close: () => answer(false) });
    document.body.append(backdrop);
    agree.focus();
  });
}

// Shows the top of the acting person's modal stack; what was typed survives an update of the same view, as in Slack.
export class Modals {
  constructor(actions, makeContext) {
    this.actions = actions;
    this.makeContext = makeContext;
    this.host = document.getElementById("overlay");
    this.shown = "";
    this.viewId = "";
  }

  show(user, stack) {
    const view = stack.at(-1);
    const key = view ? `${user} ${view.id} ${view.hash}` : "";
    if (key === this.shown) return;
    const typed = view && view.id === this.viewId ? valuesIn(this.host) : {};
    this.shown = key;
    this.viewId = view?.id ?? "";
    this.host.replaceChildren();
    if (!view) return;
    this.host.append(this.build(user, view, stack.length));
    restoreValues(this.host, typed);
  }

  build(user, view, depth) {
    const context = this.makeContext({ view, root: () => body });
    const body = h("div", { class: "modal-body" }, renderBlocks(view.blocks, context));
    const general = h("p", { class: "modal-error", role: "alert", hidden: true });
    const close = (all) => this.actions.close({ user, view_id: view.id, all });
    const send = h(
      "button",
      { type: "submit", class: "button primary", disabled: view.submit_disabled },
      view.submit ? plainText(view.submit.text) : "",
    );
    const form = h(
      "form",
      { class: "modal", role: "dialog", "aria-modal": "true", "aria-label": view.title.text, novalidate: true },
      h(
        "header",
        {},
        h("h2", {}, plainText(view.title.text)),
        h("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: () => close(true) }, "×"),
      ),
      body,
      general,
      h(
        "footer",
        {},
        h(
          "button",
          { type: "button", class: "button", onclick: () => close(false) },
          view.close ? plainText(view.close.text) : depth > 1 ? "Back" : "Close",
        ),
        view.submit && send,
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (view.submit) this.submit({ user, view, form, body, general, send });
    });
    const backdrop = h("div", { class: "backdrop" }, form);
    escapes.push({ dialog: backdrop, close: () => close(false) });
    queueMicrotask(() => (body.querySelector("[autofocus], input, textarea, select") ?? send).focus());
    return backdrop;
  }

  async submit({ user, view, body, general, send }) {
    send.disabled = true;
    send.classList.add("waiting");
    general.hidden = true;
    for (const error of body.querySelectorAll(".field-error")) error.hidden = true;
    const answer = await this.actions.submit({ user, view_id: view.id, values: valuesIn(body) });
    send.disabled = false;
    send.classList.remove("waiting");
    if (answer.ok) return;
    for (const [block, words] of Object.entries(Array.isArray(answer.errors) ? {} : (answer.errors ?? {}))) {
      const error = body.querySelector(`[data-block="${CSS.escape(block)}"] .field-error`);
      if (!error) continue;
      error.textContent = words;
      error.hidden = false;
    }
    if (answer.shown) {
      general.textContent = answer.shown;
      general.hidden = false;
    }
    body.querySelector(".field-error:not([hidden])")?.scrollIntoView({ block: "center" });
  }
}
