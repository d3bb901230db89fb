// The state of a picture without a screen: which time and which lanes are shown, what is under a point, what a
// selection holds.
import { firstAfter } from "./contract.js";

/** @typedef {import("./contract.js").Model} Model */
/** @typedef {import("./contract.js").Bars} Bars */
/** @typedef {{from: number, to: number}} Window */

/**
 * @typedef {object} State
 * @property {Window} view
 * @property {Set<number>} open lanes whose lanes below are shown
 * @property {Set<string>} kinds kinds of lanes that are shown below every rank
 * @property {Set<number>} pins lanes that stand first
 * @property {number} bar the bar that was clicked; -1 for none
 * @property {Window | null} range the time that was selected
 * @property {number | null} at the time that is looked at; null for the whole run
 * @property {string} search
 */

/** @typedef {{lane: number, y: number, height: number, depth: number}} Row */

export const RULER = 22;
const HEIGHTS = /** @type {Record<string, number>} */ ({ path: 20, rank: 20, sends: 12 });
/** Kinds that are shown without being asked for. */
const SHOWN = new Set(["path", "rank", "sends", "launch"]);

/**
 * @param {Model} model
 * @returns {State}
 */
export function fresh(model) {
  return {
    view: { from: 0, to: model.latency }, open: new Set(), kinds: new Set(), pins: new Set(), bar: -1, range: null,
    at: null, search: "",
  };
}

/**
 * The kinds of lanes that can be shown on demand.
 * @param {Model} model
 */
export function kindsOf(model) {
  return [...new Set(model.data.lanes.kind)].filter((kind) => !SHOWN.has(kind));
}

/**
 * The rows from top to bottom; the critical path first, then what is pinned.
 * @param {Model} model
 * @param {State} state
 * @returns {Row[]}
 */
export function rowsOf(model, state) {
  const { kind, parent } = model.data.lanes;
  /** @type {Row[]} */
  const found = [];
  let y = 0;
  const put = (/** @type {number} */ lane, /** @type {number} */ depth) => {
    const height = HEIGHTS[kind[lane]] || 16;
    found.push({ lane, y, height, depth });
    y += height + (kind[lane] === "rank" || kind[lane] === "path" ? 2 : 1);
  };
  const pinned = [...state.pins].sort((one, other) => one - other);
  for (const lane of pinned) put(lane, 0);
  for (let lane = 0; lane < kind.length; lane++) {
    if (parent[lane] >= 0 || (state.pins.has(lane) && !(model.children.get(lane) || []).length)) continue;
    if (!state.pins.has(lane)) put(lane, 0);
    for (const child of model.children.get(lane) || []) {
      const shown = SHOWN.has(kind[child]) || state.kinds.has(kind[child]) || state.open.has(lane);
      if (shown && !state.pins.has(child)) put(child, 1);
    }
  }
  return found;
}

/**
 * A window of the run that is no shorter than 10 ps and no longer than the run.
 * @param {Model} model
 * @param {Window} wanted
 * @returns {Window}
 */
export function within(model, wanted) {
  const length = Math.min(Math.max(wanted.to - wanted.from, 10), model.latency);
  const from = Math.min(Math.max(wanted.from, 0), model.latency - length);
  return { from, to: from + length };
}

/**
 * @param {Model} model
 * @param {Window} view
 * @param {number} factor less than 1 shows less
 * @param {number} at the time that stays where it is
 */
export function zoomed(model, view, factor, at) {
  return within(model, { from: at - (at - view.from) * factor, to: at + (view.to - at) * factor });
}

/**
 * The bars of a lane to draw: of those within one pixel the first; it takes as many steps as there are pixels.
 * @param {Bars} bars
 * @param {number} low
 * @param {number} high
 * @param {Window} view
 * @param {number} pixels
 * @param {(bar: number) => void} draw
 */
export function eachBar(bars, low, high, view, pixels, draw) {
  const pixel = (view.to - view.from) / pixels;
  let bar = firstAfter(bars, low, high, view.from);
  while (bar < high && bars.start[bar] < view.to) {
    draw(bar);
    const next = bar + 1;
    if (bars.end[bar] - bars.start[bar] >= pixel) {
      bar = next;
      continue;
    }
    const border = view.from + (Math.floor((bars.start[bar] - view.from) / pixel) + 1) * pixel;
    bar = next < high && bars.end[next] > border ? next : firstAfter(bars, next, high, border);
  }
}

/**
 * The bar of a lane at a time, or near it; -1 for none.
 * @param {Bars} bars
 * @param {number} low
 * @param {number} high
 * @param {number} time
 * @param {number} near
 */
export function barAt(bars, low, high, time, near) {
  let best = -1, distance = near;
  for (let bar = firstAfter(bars, low, high, time - near); bar < high && bars.start[bar] <= time + near; bar++) {
    const away = Math.max(bars.start[bar] - time, time - bars.end[bar], 0);
    if (away < distance || (away <= near && best < 0)) {
      best = bar;
      distance = away;
    }
    if (away === 0) break;
  }
  return best;
}

/**
 * @typedef {object} Statistics
 * @property {[string, string, number, number][]} groups name, colour, ps and bars, the most time first
 * @property {number} lanes
 * @property {number} messages that were sent in that time
 * @property {boolean} about whether bars were merged, so that times include gaps between them
 */

/**
 * What the lanes of a kind do in a window of the run.
 * @param {Model} model
 * @param {Window} range
 * @param {number[]} lanes
 * @returns {Statistics}
 */
export function statistics(model, range, lanes) {
  const { bars, data } = model;
  const times = new Float64Array(data.groups.length), counts = new Float64Array(data.groups.length);
  let about = false, messages = 0;
  for (const lane of lanes) {
    const high = bars.first[lane + 1];
    for (let bar = firstAfter(bars, bars.first[lane], high, range.from); bar < high && bars.start[bar] < range.to; bar++) {
      times[bars.group[bar]] += Math.min(bars.end[bar], range.to) - Math.max(bars.start[bar], range.from);
      counts[bars.group[bar]] += bars.count[bar];
      about = about || bars.count[bar] > 1;
    }
  }
  data.messages.sent.forEach((sent, at) => {
    if (sent >= range.from && sent < range.to) messages += data.messages.count[at];
  });
  const groups = data.groups
    .map(([name, color], at) => /** @type {[string, string, number, number]} */ ([name, color, times[at], counts[at]]))
    .filter(([, , ps, count]) => ps > 0 || count > 0)
    .sort((one, other) => other[2] - one[2]);
  return { groups, lanes: lanes.length, messages, about };
}

/**
 * The bars whose operation, line or lane has a text in it, in order of time; null for no search.
 * @param {Model} model
 * @param {string} search
 * @returns {{bars: number[], texts: Set<number>, lanes: Set<number>} | null}
 */
export function matches(model, search) {
  const wanted = search.trim().toLowerCase();
  if (!wanted) return null;
  const texts = new Set(), lanes = new Set();
  model.data.texts.forEach((text, at) => {
    if (text.some((part) => part.toLowerCase().includes(wanted))) texts.add(at);
  });
  model.data.lanes.name.forEach((name, at) => name.toLowerCase().includes(wanted) && lanes.add(at));
  const bars = [];
  for (let bar = 0; bar < model.bars.start.length; bar++) {
    if (texts.has(model.bars.text[bar]) || lanes.has(model.bars.lane[bar])) bars.push(bar);
  }
  bars.sort((one, other) => model.bars.start[one] - model.bars.start[other] || one - other);
  return { bars, texts, lanes };
}

/**
 * A state as the part of an address behind "#", and back.
 * @param {Model} model
 * @param {State} state
 */
export function toHash(model, state) {
  const parts = new URLSearchParams();
  if (state.view.from > 0 || state.view.to < model.latency) {
    parts.set("view", `${Math.round(state.view.from)}-${Math.round(state.view.to)}`);
  }
  if (state.range) parts.set("range", `${Math.round(state.range.from)}-${Math.round(state.range.to)}`);
  if (state.at !== null) parts.set("at", String(Math.round(state.at)));
  if (state.bar >= 0) parts.set("bar", String(state.bar));
  if (state.pins.size) parts.set("pins", [...state.pins].join("."));
  if (state.open.size) parts.set("open", [...state.open].join("."));
  if (state.kinds.size) parts.set("kinds", [...state.kinds].join("."));
  if (state.search) parts.set("find", state.search);
  const text = parts.toString();
  return text && `run&${text}`;
}

/**
 * @param {Model} model
 * @param {string} hash
 * @returns {State}
 */
export function fromHash(model, hash) {
  const state = fresh(model), text = hash.replace(/^#/, "");
  if (!text.startsWith("run&")) return state;
  const parts = new URLSearchParams(text.slice(4));
  const window = (/** @type {string} */ name) => {
    const found = /^(\d+)-(\d+)$/.exec(parts.get(name) || "");
    return found && Number(found[2]) > Number(found[1]) ? { from: Number(found[1]), to: Number(found[2]) } : null;
  };
  const numbers = (/** @type {string} */ name, /** @type {number} */ most) =>
    new Set((parts.get(name) || "").split(".").filter(Boolean).map(Number).filter((n) => Number.isInteger(n) && n >= 0 && n < most));
  const lanes = model.data.lanes.name.length;
  const view = window("view"), known = new Set(kindsOf(model)), at = Number(parts.get("at"));
  if (view) state.view = within(model, view);
  state.range = window("range");
  if (parts.has("at") && at >= 0 && at <= model.latency) state.at = at;
  const [bar] = numbers("bar", model.bars.start.length);
  state.bar = bar === undefined ? -1 : bar;
  state.pins = numbers("pins", lanes);
  state.open = numbers("open", lanes);
  state.kinds = new Set((parts.get("kinds") || "").split(".").filter((kind) => known.has(kind)));
  state.search = parts.get("find") || "";
  return state;
}
