// How busy links are, on a map of where they are or as rows over time.
import { load } from "./contract.js";

/** @typedef {import("./contract.js").Model} Model */
/** @typedef {import("./view.js").Window} Window */

/** From idle to busy all the time: ever darker on light ground, ever lighter on dark. */
export const RAMPS = {
  light: ["#d7e3ef", "#8fbbe0", "#3f86c6", "#1d4f91", "#0a2348"],
  dark: ["#33404f", "#2f6599", "#4b9be0", "#9fd0f7", "#eef7ff"],
};

/**
 * The colour of a share, 0 to 1.
 * @param {string[]} ramp
 * @param {number} share
 */
export function shade(ramp, share) {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
  const part = (/** @type {number} */ index, /** @type {number} */ byte) =>
    parseInt(ramp[index].slice(1 + 2 * byte, 3 + 2 * byte), 16);
  const mixed = [0, 1, 2].map((byte) => Math.round(part(low, byte) + (at - low) * (part(low + 1, byte) - part(low, byte))));
  return `rgb(${mixed.join(",")})`;
}

/**
 * The window of the run that the heat is of: the part in which a time is, a selection, or the whole run.
 * @param {Model} model
 * @param {Window | null} range
 * @param {number | null} at
 * @returns {Window}
 */
export function windowOf(model, range, at) {
  const frames = model.data.heat.frames;
  if (at !== null && frames) {
    const part = model.latency / frames, frame = Math.min(Math.floor(at / part), frames - 1);
    return { from: frame * part, to: (frame + 1) * part };
  }
  return range || { from: 0, to: model.latency };
}

/**
 * Where a map's places are on a canvas.
 * @param {import("./contract.js").Data["maps"][number]} map
 * @param {number} width
 * @param {number} most
 */
export function fit(map, width, most) {
  const xs = map.nodes.map((node) => node[1]), ys = map.nodes.map((node) => node[2]);
  const [left, right, top, bottom] = [Math.min(...xs) - 0.6, Math.max(...xs) + 0.6, Math.min(...ys) - 0.6, Math.max(...ys) + 0.6];
  const scale = Math.min(width / (right - left), most / (bottom - top), 86 / map.step);
  const margin = (width - scale * (right - left)) / 2;
  return {
    scale, height: Math.ceil(scale * (bottom - top)),
    x: (/** @type {number} */ x) => margin + (x - left) * scale,
    y: (/** @type {number} */ y) => (y - top) * scale,
  };
}

/**
 * @param {CanvasRenderingContext2D} c
 * @param {Model} model
 * @param {import("./contract.js").Data["maps"][number]} map
 * @param {Window} range
 * @param {number} width
 * @param {number} most
 * @param {string[]} ramp
 * @param {(name: string) => string} color
 * @param {number} chosen a link that stands out; -1 for none
 */
export function drawMap(c, model, map, range, width, most, ramp, color, chosen) {
  const at = fit(map, width, most);
  c.clearRect(0, 0, width, at.height);
  const wide = Math.min(Math.max(at.scale * map.step * 0.055, 1.5), 5);
  const busy = map.lines.map((line) => (line[0] < 0 ? -1 : load(model, line[0], range.from, range.to)));
  const order = map.lines.map((_, index) => index).sort((one, other) => busy[one] - busy[other]);
  for (const index of order) {
    const [link, ...points] = map.lines[index];
    const share = busy[index];
    c.strokeStyle = c.fillStyle = link >= 0 && link === chosen ? color("--mark") : share < 0 ? color("--line") : shade(ramp, share);
    c.lineWidth = share < 0 ? 1 : wide;
    c.setLineDash(share < 0 ? [2, 3] : []);
    c.beginPath();
    for (let point = 0; point < points.length; point += 2) c.lineTo(at.x(points[point]), at.y(points[point + 1]));
    c.stroke();
    if (share < 0) continue;
    const end = points.length - 2, before = Math.max(Math.floor(points.length / 4) * 2 - 2, 0);
    const [x0, y0, x1, y1] = [points[before], points[before + 1], points[before + 2], points[before + 3]];
    const part = end <= 2 ? 0.66 : 1, x = at.x(x0 + part * (x1 - x0)), y = at.y(y0 + part * (y1 - y0));
    const turn = Math.atan2(y1 - y0, x1 - x0), size = Math.max(2.4 * wide, 5);
    c.beginPath();
    c.moveTo(x + size * Math.cos(turn), y + size * Math.sin(turn));
    for (const side of [2.5, -2.5]) c.lineTo(x + size * Math.cos(turn + side), y + size * Math.sin(turn + side));
    c.fill();
  }
  c.setLineDash([]);
  const half = Math.min(at.scale * map.step * 0.2, 13), font = Math.floor(Math.min(half * 1.1, 12));
  c.font = `${font}px system-ui, sans-serif`;
  c.textAlign = "center";
  c.textBaseline = "middle";
  for (const [name, x, y] of map.nodes) {
    c.fillStyle = color("--ground");
    c.strokeStyle = color("--dim");
    c.lineWidth = 1;
    c.fillRect(at.x(x) - half, at.y(y) - half, 2 * half, 2 * half);
    c.strokeRect(at.x(x) - half, at.y(y) - half, 2 * half, 2 * half);
    if (font < 7) continue;
    c.fillStyle = color("--ink");
    c.fillText(name, at.x(x), at.y(y));
  }
  c.textAlign = "left";
}

/**
 * Rows of links over time, those of the critical path first; of several links in one pixel the busiest.
 * @param {CanvasRenderingContext2D} c
 * @param {Model} model
 * @param {Window} view
 * @param {number} width
 * @param {number} height
 * @param {number} left where time begins: names stand before
 * @param {string[]} ramp
 * @param {(name: string) => string} color
 * @param {number | null} cursor
 */
export function drawMatrix(c, model, view, width, height, left, ramp, color, cursor) {
  const { heat, links } = model.data, high = height / links.length, part = model.latency / heat.frames;
  const x = (/** @type {number} */ time) => left + ((time - view.from) * (width - left)) / (view.to - view.from);
  c.clearRect(0, 0, width, height);
  const shades = Array.from({ length: 101 }, (_, percent) => shade(ramp, percent / 100));
  const rows = Math.min(links.length, Math.floor(height));
  for (let row = 0; row < rows; row++) {
    const first = Math.floor((row * links.length) / rows), last = Math.max(Math.floor(((row + 1) * links.length) / rows), first + 1);
    for (let frame = 0; frame < heat.frames; frame++) {
      const from = Math.max(x(frame * part), left), to = Math.min(x((frame + 1) * part), width);
      if (to <= left || from >= width) continue;
      let most = 0;
      for (let link = first; link < last; link++) most = Math.max(most, heat.load[link][frame] || 0);
      c.fillStyle = shades[most];
      c.fillRect(from, (row * height) / rows, to - from + 0.5, height / rows + 0.5);
    }
  }
  c.font = "10px system-ui, sans-serif";
  c.textBaseline = "middle";
  c.fillStyle = color("--dim");
  const every = Math.max(Math.ceil(12 / high), 1);
  for (let link = 0; link < links.length; link += every) {
    let name = links[link].name;
    while (name.length > 4 && c.measureText(name).width > left - 6) name = `${name.slice(0, -2)}…`;
    c.fillText(name, 0, Math.min((link + 0.5) * high, height - 6));
  }
  if (cursor !== null) {
    c.fillStyle = color("--mark");
    c.fillRect(x(cursor), 0, 1, height);
  }
}

/**
 * The link of a map under a point; -1 for none.
 * @param {import("./contract.js").Data["maps"][number]} map
 * @param {number} width
 * @param {number} most
 * @param {number} px
 * @param {number} py
 */
export function linkAt(map, width, most, px, py) {
  const at = fit(map, width, most);
  let best = -1, distance = 7;
  for (const [link, ...points] of map.lines) {
    for (let point = 0; point + 3 < points.length; point += 2) {
      const [x0, y0, x1, y1] = [at.x(points[point]), at.y(points[point + 1]), at.x(points[point + 2]), at.y(points[point + 3])];
      const square = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
      const along = Math.min(Math.max(((px - x0) * (x1 - x0) + (py - y0) * (y1 - y0)) / square, 0), 1);
      const away = Math.hypot(px - x0 - along * (x1 - x0), py - y0 - along * (y1 - y0));
      if (link >= 0 && away < distance) [best, distance] = [link, away];
    }
  }
  return best;
}
