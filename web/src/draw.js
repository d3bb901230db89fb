// A picture of lanes on a canvas.
import { RULER, eachBar } from "./view.js";
import { unitOf } from "./words.js";

/** @typedef {import("./contract.js").Model} Model */
/** @typedef {import("./view.js").State} State */
/** @typedef {import("./view.js").Row} Row */
/** @typedef {(name: string) => string} Color the value of a CSS variable */

/**
 * @typedef {object} Place
 * @property {number} width
 * @property {number} height of what is seen
 * @property {number} top what is scrolled away of the rows
 * @property {number} left where lanes begin, behind their names
 */

/** Messages up to which all that are seen are drawn. */
const MOST_ARROWS = 240;

/**
 * @param {Place} place
 * @param {State} state
 */
export function scales(place, state) {
  const perPs = (place.width - place.left) / (state.view.to - state.view.from);
  return {
    perPs,
    x: (/** @type {number} */ time) => place.left + (time - state.view.from) * perPs,
    time: (/** @type {number} */ x) => state.view.from + (x - place.left) / perPs,
  };
}

/**
 * Draws what is seen of the rows.
 * @param {CanvasRenderingContext2D} c
 * @param {Model} model
 * @param {State} state
 * @param {Row[]} rows
 * @param {Place} place
 * @param {Color} color
 * @param {{texts: Set<number>, lanes: Set<number>} | null} found what is searched for; the rest is pale
 * @param {number} pointed the bar under the pointer; -1 for none
 */
export function draw(c, model, state, rows, place, color, found, pointed) {
  const { x, perPs } = scales(place, state), { data } = model;
  c.clearRect(0, 0, place.width, place.height);
  c.font = "11px system-ui, sans-serif";
  c.textBaseline = "middle";
  ruler(c, state, place, color);
  const seen = rows.filter((row) => row.y + row.height > place.top && row.y < place.top + place.height - RULER);
  const top = (/** @type {Row} */ row) => RULER + row.y - place.top;
  c.save();
  c.beginPath();
  c.rect(0, RULER, place.width, place.height - RULER);
  c.clip();
  for (const row of seen) label(c, model, state, row, top(row), place, color);
  c.beginPath();
  c.rect(place.left, RULER, place.width - place.left, place.height - RULER);
  c.clip();
  if (state.range) {
    c.fillStyle = color("--select");
    c.fillRect(x(state.range.from), 0, x(state.range.to) - x(state.range.from), place.height);
  }
  for (const row of seen) {
    const y = top(row), kind = data.lanes.kind[row.lane], shares = data.lanes.shares[row.lane];
    if (shares) stack(c, shares, data.classes, y, row.height, x, model.latency, place);
    const bars = kind === "path" ? model.path : model.bars;
    const [low, high] = kind === "path" ? [0, model.path.start.length] : [bars.first[row.lane], bars.first[row.lane + 1]];
    const all = !found || found.lanes.has(row.lane);
    eachBar(bars, low, high, state.view, place.width - place.left, (bar) => {
      const from = x(bars.start[bar]), wide = (bars.end[bar] - bars.start[bar]) * perPs;
      c.globalAlpha = all || (found && found.texts.has(bars.text[bar])) ? 1 : 0.15;
      c.fillStyle = data.groups[bars.group[bar]][1];
      c.fillRect(from, y, Math.max(wide - (wide > 4 ? 1 : 0), 1), row.height - 2);
    });
    c.globalAlpha = 1;
  }
  marks(c, model, state, seen, top, x, perPs, color, place);
  arrows(c, model, state, seen, top, x, color);
  const box = (/** @type {number} */ bar, /** @type {number} */ line) => {
    const row = seen.find((row) => row.lane === model.bars.lane[bar]);
    if (bar < 0 || !row) return;
    c.strokeStyle = color("--ink");
    c.lineWidth = line;
    c.strokeRect(x(model.bars.start[bar]), top(row), Math.max((model.bars.end[bar] - model.bars.start[bar]) * perPs, 2), row.height - 2);
  };
  box(pointed, 1);
  box(state.bar, 2);
  if (state.at !== null) {
    c.fillStyle = color("--mark");
    c.fillRect(x(state.at), 0, 1, place.height);
  }
  c.restore();
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {State} state
 * @param {Place} place
 * @param {Color} color
 */
function ruler(c, state, place, color) {
  const { x } = scales(place, state), { from, to } = state.view;
  const [size, unit] = unitOf(to - from);
  const rough = (to - from) / size / Math.max((place.width - place.left) / 110, 2);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || 10 * power;
  for (let at = Math.ceil(from / size / step) * step; at <= to / size; at += step) {
    const px = x(at * size), text = `${Number(at.toPrecision(10))} ${unit}`;
    c.fillStyle = color("--line");
    c.fillRect(px, RULER - 5, 1, place.height);
    if (px + c.measureText(text).width < place.width) {
      c.fillStyle = color("--dim");
      c.fillText(text, px + 3, 9);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {Model} model
 * @param {State} state
 * @param {Row} row
 * @param {number} y
 * @param {Place} place
 * @param {Color} color
 */
function label(c, model, state, row, y, place, color) {
  const { lanes } = model.data, lane = row.lane, middle = y + (row.height - 2) / 2;
  const below = (model.children.get(lane) || []).length > 0 && lanes.parent[lane] < 0 && lanes.kind[lane] !== "path";
  const sign = below ? (state.open.has(lane) ? "▾ " : "▸ ") : "";
  c.font = `${lanes.path[lane] ? "600 " : ""}${row.height < 16 ? 10 : 11}px system-ui, sans-serif`;
  c.fillStyle = color(lanes.kind[lane] === "rank" || lanes.kind[lane] === "path" ? "--ink" : "--dim");
  const wide = place.left - 6 - 10 * row.depth;
  let name = (state.pins.has(lane) ? "★ " : "") + sign + lanes.name[lane];
  if (c.measureText(name).width > wide) {
    while (name.length > 4 && c.measureText(`${name}…`).width > wide) name = name.slice(0, -1);
    name += "…";
  }
  c.fillText(name, 10 * row.depth, middle);
}

/**
 * The parts of a lane that stands for several, from its bottom up.
 * @param {CanvasRenderingContext2D} c
 * @param {number[][]} shares
 * @param {[string, string][]} classes
 * @param {number} y
 * @param {number} high
 * @param {(time: number) => number} x
 * @param {number} latency
 * @param {Place} place
 */
function stack(c, shares, classes, y, high, x, latency, place) {
  const frames = shares[0].length;
  for (let frame = 0; frame < frames; frame++) {
    const from = x((frame * latency) / frames), to = x(((frame + 1) * latency) / frames);
    if (to < place.left || from > place.width) continue;
    let bottom = y + high - 2;
    shares.forEach((part, at) => {
      const tall = ((high - 2) * part[frame]) / 100;
      bottom -= tall;
      c.fillStyle = classes[at][1];
      c.fillRect(from, Math.max(bottom, y), to - from + 0.5, Math.min(tall, high - 2));
    });
  }
}

/**
 * A line below what is on the critical path.
 * @param {CanvasRenderingContext2D} c
 * @param {Model} model
 * @param {State} state
 * @param {Row[]} seen
 * @param {(row: Row) => number} top
 * @param {(time: number) => number} x
 * @param {number} perPs
 * @param {Color} color
 * @param {Place} place
 */
function marks(c, model, state, seen, top, x, perPs, color, place) {
  const { path, data } = model;
  const at = new Map(seen.map((row) => [row.lane, row]));
  c.fillStyle = color("--mark");
  eachBar(path, 0, path.start.length, state.view, place.width - place.left, (bar) => {
    const lane = path.lane[bar], row = at.get(lane) || at.get(data.lanes.parent[lane]);
    if (row) c.fillRect(x(path.start[bar]), top(row) + row.height - 4, Math.max((path.end[bar] - path.start[bar]) * perPs, 1), 2.5);
  });
}

/**
 * Messages from the bar that sends to the bar that reads: those of the bar that was clicked, and all while they are few.
 * @param {CanvasRenderingContext2D} c
 * @param {Model} model
 * @param {State} state
 * @param {Row[]} seen
 * @param {(row: Row) => number} top
 * @param {(time: number) => number} x
 * @param {Color} color
 */
function arrows(c, model, state, seen, top, x, color) {
  const { messages } = model.data, { bars } = model;
  const at = new Map(seen.map((row) => [row.lane, top(row) + (row.height - 2) / 2]));
  const place = (/** @type {number} */ bar) => at.get(bars.lane[bar]) ?? at.get(model.data.lanes.parent[bars.lane[bar]]);
  const line = (/** @type {number} */ message, /** @type {boolean} */ strong) => {
    const from = place(messages.from[message]), to = place(messages.to[message]);
    if (from === undefined || to === undefined) return;
    const start = x(messages.sent[message]), end = x(messages.sent[message] + messages.took[message]);
    const turn = Math.atan2(to - from, end - start), size = strong ? 7 : 5;
    c.globalAlpha = strong ? 1 : 0.55;
    c.lineWidth = strong ? 2 : 1;
    c.beginPath();
    c.moveTo(start, from);
    c.lineTo(end, to);
    c.stroke();
    c.beginPath();
    c.moveTo(end, to);
    for (const side of [-0.4, 0.4]) c.lineTo(end - size * Math.cos(turn + side), to - size * Math.sin(turn + side));
    c.fill();
  };
  c.strokeStyle = c.fillStyle = color("--arrow");
  const visible = [];
  for (let message = 0; message < messages.sent.length && visible.length <= MOST_ARROWS; message++) {
    if (messages.sent[message] < state.view.to && messages.sent[message] + messages.took[message] > state.view.from) {
      if (place(messages.from[message]) !== undefined && place(messages.to[message]) !== undefined) visible.push(message);
    }
  }
  if (visible.length <= MOST_ARROWS) visible.forEach((message) => line(message, false));
  c.strokeStyle = c.fillStyle = color("--mark");
  for (const message of ofBar(model, state.bar)) line(message, true);
  c.globalAlpha = 1;
}

/**
 * The messages that a bar sends, reads or, as a link's, carries.
 * @param {Model} model
 * @param {number} bar
 * @returns {number[]}
 */
export function ofBar(model, bar) {
  if (bar < 0) return [];
  const { bars, data } = model, { sent, took } = data.messages;
  const carried = (model.carries.get(bars.lane[bar]) || []).filter(
    (at) => sent[at] <= bars.end[bar] && sent[at] + took[at] >= bars.start[bar]
      && bars.text[bar] === bars.text[data.messages.from[at]]);
  return [...(model.sends.get(bar) || []), ...(model.reads.get(bar) || []), ...carried];
}
