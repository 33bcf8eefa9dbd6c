// What the page knows of the workspace, and its one connection to the stand-in.

export class Workspace {
  constructor(changed, connected) {
    this.changed = changed;
    this.connected = connected;
    this.messages = new Map();
    this.ephemerals = new Map();
    this.views = {};
    this.homes = {};
    this.people = new Map();
    this.groups = new Map();
    this.channels = new Map();
    this.commands = [];
    this.shortcuts = [];
    this.dismissed = new Set();
    this.isLoaded = false;
  }

  // Changes that come while the whole is loading are kept and applied after it: nothing is missed.
  connect() {
    const source = new EventSource("/__sandbox__/stream");
    let waiting = null;
    source.onopen = async () => {
      waiting = [];
      await this.load();
      for (const change of waiting) this.apply(change);
      waiting = null;
      this.connected(true);
      this.changed({ kind: "loaded" });
    };
    source.onerror = () => this.connected(false);
    source.onmessage = ({ data }) => {
      const change = JSON.parse(data);
      if (waiting) waiting.push(change);
      else {
        this.apply(change);
        this.changed(change);
      }
    };
  }

  async load() {
    const whole = await (await fetch("/__sandbox__/page")).json();
    this.bot = whole.bot;
    this.people = new Map(whole.people.map((person) => [person.id, person]));
    this.groups = new Map(whole.groups.map((group) => [group.id, group]));
    this.channels = new Map(whole.channels.map((channel) => [channel.id, channel]));
    this.messages = new Map(
      Object.entries(whole.messages).map(([channel, list]) => [channel, new Map(list.map((m) => [m.ts, m]))]),
    );
    this.ephemerals = new Map(whole.ephemerals.map((message) => [message.ts, message]));
    Object.assign(this, {
      views: whole.views,
      homes: whole.homes,
      commands: whole.commands,
      shortcuts: whole.shortcuts,
    });
    this.isLoaded = true;
  }

  apply(change) {
    if (change.kind === "message") this.ofChannel(change.channel).set(change.message.ts, change.message);
    else if (change.kind === "message_deleted") this.ofChannel(change.channel).delete(change.ts);
    else if (change.kind === "ephemeral") this.ephemerals.set(change.message.ts, change.message);
    else if (change.kind === "ephemeral_deleted") this.ephemerals.delete(change.ts);
    else if (change.kind === "views") this.views[change.user] = change.stack;
    else if (change.kind === "channel") this.channels.set(change.channel.id, change.channel);
    else if (change.kind === "home") this.homes[change.user] = change.view;
    else if (change.kind === "reset") {
      this.messages.clear();
      this.ephemerals.clear();
      this.views = {};
      this.homes = {};
    }
  }

  ofChannel(channel) {
    if (!this.messages.has(channel)) this.messages.set(channel, new Map());
    return this.messages.get(channel);
  }

  whispersTo(user, channel, threadTs) {
    return [...this.ephemerals.values()].filter(
      (message) =>
        message.recipient === user &&
        message.channel === channel &&
        message.thread_ts === threadTs &&
        !this.dismissed.has(message.ts),
    );
  }

  // Oldest first, with what only this person sees among them.
  channelMessages(channel, user) {
    const tops = [...this.ofChannel(channel).values()].filter(
      (message) => (message.thread_ts ?? message.ts) === message.ts || message.subtype === "thread_broadcast",
    );
    return sorted([...tops, ...this.whispersTo(user, channel, undefined)]);
  }

  threadMessages(channel, rootTs, user) {
    return sorted([...this.replies(channel, rootTs), ...this.whispersTo(user, channel, rootTs)]);
  }

  replies(channel, rootTs) {
    return [...this.ofChannel(channel).values()].filter(
      (message) => message.thread_ts === rootTs && message.ts !== rootTs,
    );
  }
}

function sorted(messages) {
  return messages.sort((a, b) => (a.ts < b.ts ? -1 : 1));
}

// One act of the acting person; network trouble is an answer too.
export async function act(name, body) {
  try {
    const response = await fetch(`/__sandbox__/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    return answer.ok || answer.shown ? answer : { ...answer, shown: answer.errors ? undefined : answer.error };
  } catch {
    return { ok: false, shown: "The sandbox itself does not answer." };
  }
}
