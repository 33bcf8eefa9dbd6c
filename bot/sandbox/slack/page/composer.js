// The box in which people write: a message, or a slash command where commands are allowed.

import { h } from "./dom.js";

const TALLEST = 160;

// `send(text)` resolves to whether the text may be cleared; `commands()` lists what `/` may begin, none in a thread.
export function composer(form, { placeholder, commands, send }) {
  const field = h("textarea", { rows: 1, "aria-label": placeholder, placeholder });
  const hints = h("div", { class: "hints", hidden: true });
  const button = h("button", { type: "submit", class: "send", "aria-label": "Send" }, "Send");
  form.replaceChildren(hints, field, button);

  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight, TALLEST)}px`;
  };
  const matching = () =>
    /^\/\S*$/.test(field.value) ? commands().filter((command) => command.startsWith(field.value)) : [];
  const hint = () => {
    const found = matching();
    hints.hidden = found.length === 0;
    hints.replaceChildren(
      ...found.map((command) =>
        h(
          "button",
          { type: "button", onclick: () => complete(command) },
          h("strong", {}, command),
          h("span", {}, "Incident bot"),
          h("kbd", {}, "Tab"),
        ),
      ),
    );
  };
  const complete = (command) => {
    field.value = `${command} `;
    hint();
    field.focus();
  };
  const submit = async () => {
    const words = field.value.trim();
    if (!words) return;
    field.value = "";
    fit();
    hint();
    if (!(await send(words))) {
      field.value = field.value || words;
      fit();
    }
  };
  field.addEventListener("input", () => {
    fit();
    hint();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Tab" && matching().length > 0) {
      event.preventDefault();
      complete(matching()[0]);
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  return {
    focus: () => field.focus(),
    isInUse: () => field.value !== "" || document.activeElement === field,
  };
}
