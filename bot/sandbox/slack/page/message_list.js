// A list of messages that redraws only what changed, so that an open menu or a half-written answer stays.
// Whoever reads the newest message goes on seeing the newest, also when a picture or a preview comes late.

import { h } from "./dom.js";

const NEAR_THE_END = 80;

export class MessageList {
  constructor(host) {
    this.host = host;
    this.content = h("div");
    this.drawn = new Map();
    this.isAtEnd = true;
    host.replaceChildren(this.content);
    let lastTop = 0;
    host.addEventListener("scroll", () => {
      // Only scrolling up leaves the end: content that grew below also puts it out of reach.
      if (host.scrollHeight - host.scrollTop - host.clientHeight < NEAR_THE_END) this.isAtEnd = true;
      else if (host.scrollTop < lastTop) this.isAtEnd = false;
      lastTop = host.scrollTop;
    });
    const stay = new ResizeObserver(() => this.isAtEnd && this.toEnd());
    stay.observe(this.content);
    stay.observe(host);
  }

  show(entries) {
    const { content } = this;
    const kept = new Map();
    const nodes = entries.map(({ key, signature, build }) => {
      const old = this.drawn.get(key);
      const entry = old?.signature === signature ? old : { signature, node: build() };
      kept.set(key, entry);
      return entry.node;
    });
    nodes.forEach((node, index) => {
      if (content.children[index] !== node) content.insertBefore(node, content.children[index] ?? null);
    });
    while (content.children.length > nodes.length) content.lastElementChild.remove();
    this.drawn = kept;
    if (this.isAtEnd) this.toEnd();
  }

  toEnd() {
    this.isAtEnd = true;
    this.host.scrollTop = this.host.scrollHeight;
  }

  // Brings one message into view and marks it for a moment.
  point(ts) {
    const found = this.drawn.get(ts)?.node;
    if (!found) return;
    this.isAtEnd = false;
    found.scrollIntoView({ block: "center" });
    found.classList.add("pointed-at");
    found.addEventListener("animationend", () => found.classList.remove("pointed-at"), { once: true });
  }
}
