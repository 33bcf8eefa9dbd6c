// Emoji by their short names. The ones that carry meaning in an incident are drawn, since a machine without an
// emoji font would show empty boxes for them; all others are left to the font.

import { h, svg } from "./dom.js";

const path = (d, fill) => ["path", { d, fill }];
const line = (d, stroke, width = 2.4) => [
  "path",
  { d, fill: "none", stroke, "stroke-width": width, "stroke-linecap": "round", "stroke-linejoin": "round" },
];
const dot = (cx, cy, r, fill) => ["circle", { cx, cy, r, fill }];
const box = (x, y, width, height, rx, fill) => ["rect", { x, y, width, height, rx, fill }];

const RED = "#dc3545";
const ORANGE = "#f0862b";
const YELLOW = "#f2b824";
const GREEN = "#1f9d61";
const BLUE = "#3273dc";
const PURPLE = "#8250c4";
const GREY = "#667085";
const INK = "#344054";
const WHITE = "#ffffff";

const ball = (fill) => [dot(12, 12, 9, fill)];
const tile = (fill) => [box(3, 3, 18, 18, 3, fill)];
const badge = (fill, ...marks) => [box(2, 2, 20, 20, 5, fill), ...marks];

const DRAWN = {
  red_circle: ball(RED),
  large_orange_circle: ball(ORANGE),
  large_yellow_circle: ball(YELLOW),
  large_green_circle: ball(GREEN),
  large_blue_circle: ball(BLUE),
  large_purple_circle: ball(PURPLE),
  white_circle: [dot(12, 12, 8, WHITE), ["circle", { cx: 12, cy: 12, r: 8, fill: "none", stroke: "#98a2b3", "stroke-width": 2 }]],
  black_circle: ball(INK),
  large_red_square: tile(RED),
  large_orange_square: tile(ORANGE),
  large_yellow_square: tile(YELLOW),
  large_green_square: tile(GREEN),
  large_blue_square: tile(BLUE),
  white_large_square: [["rect", { x: 4, y: 4, width: 16, height: 16, rx: 3, fill: WHITE, stroke: "#98a2b3", "stroke-width": 2 }]],
  black_large_square: tile(INK),
  white_check_mark: badge(GREEN, line("M7 12.5l3.4 3.4L17 8.6", WHITE)),
  heavy_check_mark: [line("M4 13l5 5L20 6.5", GREEN, 3)],
  x: [line("M5.5 5.5l13 13M18.5 5.5l-13 13", RED, 3.4)],
  negative_squared_cross_mark: badge(GREEN, line("M8 8l8 8M16 8l-8 8", WHITE)),
  warning: [path("M12 2.8c.7 0 1.3.4 1.7 1l8 14.2c.7 1.3-.2 2.9-1.7 2.9H4c-1.5 0-2.4-1.6-1.7-2.9l8-14.2c.4-.6 1-1 1.7-1z", YELLOW), line("M12 9v5.2", INK), dot(12, 17.5, 1.4, INK)],
  rotating_light: [path("M5.5 18v-5.5a6.5 6.5 0 0 1 13 0V18z", RED), box(3.5, 18, 17, 3.6, 1.6, GREY), line("M12 1.2v2M3.6 5l1.5 1.3M20.4 5l-1.5 1.3", ORANGE, 2)],
  fire: [path("M12.5 2c.6 3.5 5.9 6 5.9 11.7A6.5 6.5 0 0 1 12 22a6.5 6.5 0 0 1-6.4-6.9c.1-2.9 1.9-4.3 2.5-6.4 1.3.8 1.9 1.9 2 3.1C12 9.6 12.9 5.9 12.5 2z", ORANGE), path("M12.2 13c.4 1.8 2.6 2.5 2.6 5A2.9 2.9 0 0 1 12 21a2.9 2.9 0 0 1-2.8-3c0-2 2.2-2.8 3-5z", YELLOW)],
  hourglass: [path("M6 3h12v3.5c0 2.7-3 4-4.2 5.5 1.2 1.5 4.2 2.8 4.2 5.5V21H6v-3.5c0-2.7 3-4 4.2-5.5C9 10.5 6 9.2 6 6.5z", "#e8d9b8"), path("M8.5 18.5c0-1.5 2-2.5 3.5-3.5 1.5 1 3.5 2 3.5 3.5z", ORANGE), line("M5 3h14M5 21h14", "#8a6d3b")],
  stopwatch: [dot(12, 13.5, 8, INK), dot(12, 13.5, 5.8, WHITE), line("M12 13.5V10M10 2.8h4", INK, 2)],
  clock3: [dot(12, 12, 9.5, INK), dot(12, 12, 7.4, WHITE), line("M12 7v5h4", INK, 2)],
  pushpin: [path("M14.5 2.5l7 7-2 1-1.2 0-3.3 3.3c.5 1.9.2 3.7-1 5.2l-9-9c1.5-1.2 3.3-1.5 5.2-1L13.5 5.7V4.5z", RED), line("M8.5 15.5L3 21", GREY, 2)],
  bell: [path("M12 2.5a6.5 6.5 0 0 1 6.5 6.5c0 4.5 1.5 6 2.5 8H3c1-2 2.5-3.5 2.5-8A6.5 6.5 0 0 1 12 2.5z", YELLOW), path("M9.5 18.5h5a2.5 2.5 0 0 1-5 0z", "#c78a12")],
  no_bell: [path("M12 2.5a6.5 6.5 0 0 1 6.5 6.5c0 4.5 1.5 6 2.5 8H3c1-2 2.5-3.5 2.5-8A6.5 6.5 0 0 1 12 2.5z", "#98a2b3"), line("M3.5 3.5l17 17", RED, 2.4)],
  mute: [path("M2.5 9h4.5l6.5-5.5v17L7 15H2.5z", GREY), line("M16.5 9l5 6M21.5 9l-5 6", RED, 2.4)],
  mega: [path("M3 10l14-6v15L3 14.5z", RED), line("M7 15.5v4.5h3.2v-3.4", INK, 2), line("M20.5 9.3v4.8", INK, 2.2)],
  hammer: [line("M10 8v13", "#a9713c", 3.2), path("M4 4.5h11c2.5 0 4.5 1.2 5.5 3.5-2-.6-3.6-.5-5 1H4z", GREY)],
  raised_hand: [box(6, 9.5, 12, 12, 4.5, YELLOW), box(6, 5, 2.6, 9, 1.3, YELLOW), box(9.1, 2.5, 2.6, 11, 1.3, YELLOW), box(12.2, 2.5, 2.6, 11, 1.3, YELLOW), box(15.4, 4.5, 2.6, 9, 1.3, YELLOW), line("M6.8 17.5L3.4 13", YELLOW, 2.8)],
  lock: [box(4, 10, 16, 11.5, 2.5, YELLOW), line("M7.5 10V7.5a4.5 4.5 0 0 1 9 0V10", GREY), dot(12, 15.5, 1.7, INK)],
  mag: [["circle", { cx: 10, cy: 10, r: 6.5, fill: "#dbeafe", stroke: INK, "stroke-width": 2.2 }], line("M15 15l6 6", INK, 3)],
  wrench: [path("M20.8 6.2l-3.3 3.3-3-.9-.9-3 3.3-3.3a6 6 0 0 0-7.7 7.7L2.8 16.4a2.6 2.6 0 0 0 0 3.7l1.1 1.1a2.6 2.6 0 0 0 3.7 0l6.4-6.4a6 6 0 0 0 6.8-8.6z", GREY)],
  gear: [["circle", { cx: 12, cy: 12, r: 6, fill: "none", stroke: GREY, "stroke-width": 4 }], line("M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2", GREY, 3)],
  bar_chart: [box(3, 11, 4.5, 10, 1, GREEN), box(9.8, 4, 4.5, 17, 1, RED), box(16.5, 8, 4.5, 13, 1, BLUE)],
  chart_with_upwards_trend: [box(2, 2, 20, 20, 3, "#eef2f7"), line("M5 17l5-5 3.5 3L19 7", RED, 2.2)],
  chart_with_downwards_trend: [box(2, 2, 20, 20, 3, "#eef2f7"), line("M5 7l5 5 3.5-3L19 17", BLUE, 2.2)],
  memo: [box(4, 2, 15, 20, 2, "#e4e9f2"), line("M7.5 7.5h8M7.5 11.5h8M7.5 15.5h4", GREY, 1.8), line("M21 10l-7 8-1 3 2.8-1.3 7-8z", ORANGE, 1.6)],
  clipboard: [box(4, 3.5, 16, 18.5, 2, "#c79a5b"), box(6, 6, 12, 14, 1, WHITE), box(8.5, 1.8, 7, 4, 1.4, GREY), line("M8.5 10.5h7M8.5 14h7", GREY, 1.6)],
  no_entry: [dot(12, 12, 10, RED), box(5.5, 10, 13, 4, 1, WHITE)],
  no_entry_sign: [["circle", { cx: 12, cy: 12, r: 8.5, fill: "none", stroke: RED, "stroke-width": 3 }], line("M6 6l12 12", RED, 3)],
  octagonal_sign: [path("M7.9 2h8.2L22 7.9v8.2L16.1 22H7.9L2 16.1V7.9z", RED), box(6, 10.3, 12, 3.4, 1, WHITE)],
  double_vertical_bar: badge(BLUE, box(7.5, 7, 3, 10, 1, WHITE), box(13.5, 7, 3, 10, 1, WHITE)),
  arrow_forward: badge(BLUE, path("M9 7l8 5-8 5z", WHITE)),
  information_source: badge(BLUE, dot(12, 7.4, 1.5, WHITE), line("M12 11.2v6", WHITE)),
  question: [line("M7.8 8.2a4.3 4.3 0 1 1 6.3 3.8c-1.4.8-2.1 1.6-2.1 3.2", RED, 2.8), dot(12, 19.8, 1.8, RED)],
  exclamation: [line("M12 3.5v11", RED, 3.2), dot(12, 19.8, 1.9, RED)],
  leftwards_arrow_with_hook: badge(BLUE, line("M10 6.5L6.5 10l3.5 3.5M7 10h6.5a3.5 3.5 0 0 1 0 7H11", WHITE, 2)),
  rewind: badge(BLUE, path("M12 7v10l-6-5zM18 7v10l-6-5z", WHITE)),
  arrows_counterclockwise: badge(BLUE, line("M7 10a5.5 5.5 0 0 1 10-1M17 14a5.5 5.5 0 0 1-10 1", WHITE, 2), path("M18.5 6v4.5H14zM5.5 18v-4.5H10z", WHITE)),
  arrow_right: badge(BLUE, line("M6 12h11M13 7.5l4.5 4.5-4.5 4.5", WHITE, 2)),
  arrow_up: badge(BLUE, line("M12 18V7M7.5 11L12 6.5l4.5 4.5", WHITE, 2)),
  arrow_down: badge(BLUE, line("M12 6v11M7.5 13l4.5 4.5 4.5-4.5", WHITE, 2)),
  eyes: [["ellipse", { cx: 7.5, cy: 12, rx: 4.3, ry: 6.5, fill: WHITE, stroke: GREY, "stroke-width": 1.5 }], ["ellipse", { cx: 16.5, cy: 12, rx: 4.3, ry: 6.5, fill: WHITE, stroke: GREY, "stroke-width": 1.5 }], dot(6.5, 13, 2, INK), dot(15.5, 13, 2, INK)],
  robot_face: [box(4, 6.5, 16, 14, 3, "#8fa3c4"), dot(9, 12.5, 1.9, WHITE), dot(15, 12.5, 1.9, WHITE), line("M9 17h6M12 6V3", INK, 1.8), dot(12, 2.8, 1.5, RED)],
  bust_in_silhouette: [dot(12, 8, 4.5, "#5b6b88"), path("M3.5 21a8.5 8.5 0 0 1 17 0z", "#5b6b88")],
  busts_in_silhouette: [dot(9, 8.5, 4, "#5b6b88"), path("M1.5 20.5a7.5 7.5 0 0 1 15 0z", "#5b6b88"), dot(17, 9, 3.2, "#93a1b9"), path("M17.3 20.5H22.5a6 6 0 0 0-7.5-6.5", "#93a1b9")],
  rocket: [path("M14.5 3c3-1.3 5.5-1 6.5-.8.2 1 .5 3.5-.8 6.5-1 2.4-4 5.7-7.7 8.3l-5.3-5.3C9.8 8 12.1 4 14.5 3z", "#b8c3d6"), dot(15.5, 8.5, 2, BLUE), path("M6.3 12.5L3 14.5l3.5 1zM11.5 17.7l-2 3.3-1-3.5z", RED), path("M6.5 16.5l-4 5 5-4z", ORANGE)],
  link: [line("M10 14a4 4 0 0 0 5.7 0l3.5-3.5a4 4 0 0 0-5.7-5.7L12 6.3M14 10a4 4 0 0 0-5.7 0l-3.5 3.5a4 4 0 0 0 5.7 5.7L12 17.7", GREY, 2.2)],
  zap: [path("M13.5 2L4.5 13.5h6L9.5 22l9.5-12h-6.3z", YELLOW)],
  seedling: [line("M12 21v-9", GREEN, 2.2), path("M12 13c0-4-3-6.5-8.5-6.5C3.5 11 7 13.5 12 13z", GREEN), path("M12 11c0-4 3-6.5 8.5-6.5 0 5-3.5 7-8.5 6.5z", "#34b978")],
  bulb: [path("M12 2a7 7 0 0 1 4.2 12.6c-.8.6-1.2 1.5-1.2 2.4H9c0-.9-.4-1.8-1.2-2.4A7 7 0 0 1 12 2z", YELLOW), box(9, 18, 6, 3.5, 1.2, GREY)],
  parking: badge(BLUE, line("M9 17.5V6.5h3.6a3.4 3.4 0 0 1 0 6.8H9", WHITE, 2.6)),
  package: [path("M12 2l9 4.5v11L12 22l-9-4.5v-11z", "#c08a4e"), line("M3.5 6.8L12 11l8.5-4.2M12 11v10.5", "#8a5f30", 1.6)],
  computer: [box(2.5, 4, 19, 12.5, 1.8, INK), box(4.3, 5.8, 15.4, 9, 0.6, "#cfe0fb"), box(1, 18, 22, 2.6, 1.3, GREY)],
};

const GLYPHS = {
  thumbsup: "👍", "+1": "👍", thumbsdown: "👎", "-1": "👎", tada: "🎉", pray: "🙏", wave: "👋", heart: "❤️",
  smile: "😄", slightly_smiling_face: "🙂", thinking_face: "🤔", raised_hands: "🙌", clap: "👏", point_right: "👉",
  hammer_and_wrench: "🛠️", checkered_flag: "🏁", snowflake: "❄️", skull: "💀", ghost: "👻", bug: "🐛", books: "📚",
  book: "📋", calendar: "📅", loudspeaker: "📢", shield: "🛡️", key: "🔑", satellite: "🛰️", wastebasket: "🗑️",
  page_facing_up: "📄", file_folder: "📁", test_tube: "🧪", microscope: "🔬", telescope: "🔭", dart: "🎯", crossed_fingers: "🤞",
};

const ALIASES = {
  green_circle: "large_green_circle", yellow_circle: "large_yellow_circle", orange_circle: "large_orange_circle",
  blue_circle: "large_blue_circle", purple_circle: "large_purple_circle", large_red_circle: "red_circle",
  red_square: "large_red_square", orange_square: "large_orange_square", yellow_square: "large_yellow_square", green_square: "large_green_square",
  hourglass_flowing_sand: "hourglass", heavy_multiplication_x: "x", stop_sign: "octagonal_sign", pause_button: "double_vertical_bar",
  round_pushpin: "pushpin", mag_right: "mag", alarm_clock: "clock3", timer_clock: "stopwatch", clock1: "clock3", information: "information_source",
  grey_question: "question", white_square: "white_large_square", pencil: "memo", spiral_note_pad: "memo", arrows_clockwise: "arrows_counterclockwise",
  repeat: "arrows_counterclockwise", play: "arrow_forward", black_square: "black_large_square", closed_lock_with_key: "lock",
};

const CHARACTERS = {
  "🔴": "red_circle", "🟠": "large_orange_circle", "🟡": "large_yellow_circle", "🟢": "large_green_circle", "🔵": "large_blue_circle",
  "🟣": "large_purple_circle", "⚪": "white_circle", "⚫": "black_circle", "🟥": "large_red_square", "🟧": "large_orange_square",
  "🟨": "large_yellow_square", "🟩": "large_green_square", "🟦": "large_blue_square", "⬜": "white_large_square", "⬛": "black_large_square",
  "✅": "white_check_mark", "✔": "heavy_check_mark", "✖": "x", "❌": "x", "❎": "negative_squared_cross_mark", "⚠": "warning", "🚨": "rotating_light",
  "🔥": "fire", "⏳": "hourglass", "⌛": "hourglass", "⏱": "stopwatch", "🕒": "clock3", "⏰": "clock3", "📌": "pushpin", "🔔": "bell", "🔕": "no_bell", "🔇": "mute",
  "📣": "mega", "🔨": "hammer", "✋": "raised_hand",
  "🔒": "lock", "🔍": "mag", "🔎": "mag", "🔧": "wrench", "⚙": "gear", "📊": "bar_chart", "📈": "chart_with_upwards_trend",
  "📉": "chart_with_downwards_trend", "📝": "memo", "📋": "clipboard", "⛔": "no_entry", "🚫": "no_entry_sign", "🛑": "octagonal_sign",
  "⏸": "double_vertical_bar", "▶": "arrow_forward", "ℹ": "information_source", "❓": "question", "❗": "exclamation", "↩": "leftwards_arrow_with_hook",
  "⏪": "rewind", "🔄": "arrows_counterclockwise", "🔁": "arrows_counterclockwise", "➡": "arrow_right", "⬆": "arrow_up", "⬇": "arrow_down",
  "👀": "eyes", "🤖": "robot_face", "👤": "bust_in_silhouette", "👥": "busts_in_silhouette", "🚀": "rocket", "🔗": "link", "⚡": "zap", "🌱": "seedling",
  "💡": "bulb", "📦": "package", "💻": "computer", "🅿": "parking",
};

export const EMOJI_CHARACTER = new RegExp(`(?:${Object.keys(CHARACTERS).join("|")})\\uFE0F?`, "u");

// The picture of one emoji, or null where the name is unknown.
export function emoji(name) {
  const known = ALIASES[name] ?? name;
  if (DRAWN[known]) {
    const picture = svg("0 0 24 24", DRAWN[known], { role: "img", "aria-label": `:${name}:`, class: "emoji" });
    return picture;
  }
  return GLYPHS[known] ? h("span", { class: "emoji-glyph", title: `:${name}:` }, GLYPHS[known]) : null;
}

export function emojiOfCharacter(character) {
  return emoji(CHARACTERS[character.replace("\uFE0F", "")]);
}
