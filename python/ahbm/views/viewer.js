// Made of web/src by scripts/viewer.py: change it there.

const CONTRACT = 1;




function decode(data) {
  if (data.contract !== CONTRACT) {
    throw new Error(`the picture is of version ${data.contract} of the contract, this viewer reads ${CONTRACT}`);
  }
  const lanes = data.lanes.name.length, count = data.bars.start.length;
  const first = new Int32Array(lanes + 1), lane = new Int32Array(count);
  const start = new Float64Array(count), end = new Float64Array(count);
  for (let at = 0, bar = 0; at < lanes; at++) {
    first[at] = bar;
    for (let last = 0, left = data.bars.lanes[at] || 0; left > 0; left--, bar++) {
      lane[bar] = at;
      last = start[bar] = last + data.bars.start[bar];
      end[bar] = last + data.bars.length[bar];
    }
    first[at + 1] = bar;
  }
  const merged = data.bars.count.length ? Int32Array.from(data.bars.count) : new Int32Array(count).fill(1);
  const bars = {
    lane, start, end, first, count: merged,
    group: Int32Array.from(data.bars.group), text: Int32Array.from(data.bars.text),
  };
  const stretches = data.path.start.length;
  const path = {
    lane: Int32Array.from(data.path.lane),
    start: Float64Array.from(data.path.start),
    end: Float64Array.from(data.path.start, (from, at) => from + data.path.length[at]),
    group: Int32Array.from(data.path.group),
    text: Int32Array.from(data.path.text),
    count: new Int32Array(stretches).fill(1),
    first: Int32Array.of(0, stretches),
  };
  const firstLink = new Int32Array(data.messages.links.length + 1);
  data.messages.links.forEach((links, at) => { firstLink[at + 1] = firstLink[at] + links; });
  const sends = new Map(), reads = new Map(), carries = new Map(), children = new Map();
  data.messages.from.forEach((bar, at) => add(sends, bar, at));
  data.messages.to.forEach((bar, at) => add(reads, bar, at));
  for (let at = 0; at + 1 < firstLink.length; at++) {
    for (let link = firstLink[at]; link < firstLink[at + 1]; link++) add(carries, data.messages.link[link], at);
  }
  data.lanes.parent.forEach((parent, at) => parent >= 0 && add(children, parent, at));
  return { data, bars, path, firstLink, sends, reads, carries, children, latency: Math.max(data.latency, 1) };
}

function add(found, key, value) {
  const values = found.get(key);
  if (values) values.push(value);
  else found.set(key, [value]);
}

function firstAfter(bars, low, high, time) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

function linksOf(model, message) {
  return model.data.messages.link.slice(model.firstLink[message], model.firstLink[message + 1]);
}

function load(model, link, from, to) {
  const { frames, load: all } = model.data.heat, row = all[link];
  if (!frames || !row || !row.length) return 0;
  const part = model.latency / frames;
  let sum = 0, whole = 0;
  for (let frame = Math.max(Math.floor(from / part), 0); frame < frames && frame * part < Math.max(to, from + 1); frame++) {
    const share = Math.max(Math.min(to, (frame + 1) * part) - Math.max(from, frame * part), 1e-9);
    sum += share * row[frame];
    whole += share;
  }
  return whole ? sum / whole / 100 : 0;
}

const RULER = 22;
const HEIGHTS = ({ path: 20, rank: 20, sends: 12 });
const SHOWN = new Set(["path", "rank", "sends", "launch"]);

function fresh(model) {
  return {
    view: { from: 0, to: model.latency }, open: new Set(), kinds: new Set(), pins: new Set(), bar: -1, range: null,
    at: null, search: "",
  };
}

function kindsOf(model) {
  return [...new Set(model.data.lanes.kind)].filter((kind) => !SHOWN.has(kind));
}

function rowsOf(model, state) {
  const { kind, parent } = model.data.lanes;
  const found = [];
  let y = 0;
  const put = (lane, depth) => {
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

function within(model, wanted) {
  const length = Math.min(Math.max(wanted.to - wanted.from, 10), model.latency);
  const from = Math.min(Math.max(wanted.from, 0), model.latency - length);
  return { from, to: from + length };
}

function zoomed(model, view, factor, at) {
  return within(model, { from: at - (at - view.from) * factor, to: at + (view.to - at) * factor });
}

function eachBar(bars, low, high, view, pixels, draw) {
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

function barAt(bars, low, high, time, near) {
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


function statistics(model, range, lanes) {
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
    .map(([name, color], at) => ([name, color, times[at], counts[at]]))
    .filter(([, , ps, count]) => ps > 0 || count > 0)
    .sort((one, other) => other[2] - one[2]);
  return { groups, lanes: lanes.length, messages, about };
}

function matches(model, search) {
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

function toHash(model, state) {
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

function fromHash(model, hash) {
  const state = fresh(model), text = hash.replace(/^#/, "");
  if (!text.startsWith("run&")) return state;
  const parts = new URLSearchParams(text.slice(4));
  const window = (name) => {
    const found = /^(\d+)-(\d+)$/.exec(parts.get(name) || "");
    return found && Number(found[2]) > Number(found[1]) ? { from: Number(found[1]), to: Number(found[2]) } : null;
  };
  const numbers = (name, most) =>
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

function unitOf(ps) {
  return (ps >= 1e9 ? [1e9, "ms"] : ps >= 1e6 ? [1e6, "us"] : ps >= 1e3 ? [1e3, "ns"] : [1, "ps"]);
}

function time(ps) {
  const [size, unit] = unitOf(ps);
  return `${Number((ps / size).toPrecision(5))} ${unit}`;
}

function csv(rows) {
  const cell = (value) => {
    let text = String(value);
    if (/^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+( ?%)?$/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function compare(one, other) {
  const number = (text) => {
    const found = /^[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?/i.exec(text.trim());
    return found ? Number(found[0].replaceAll(",", "")) * (SIZES[text.trim().slice(found[0].length).trim()] || 1) : NaN;
  };
  const [a, b] = [number(one), number(other)];
  if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
  if (Number.isNaN(a) !== Number.isNaN(b)) return Number.isNaN(a) ? 1 : -1;
  return one.localeCompare(other, "en", { numeric: true });
}

const SIZES = ({
  ps: 1, ns: 1e3, us: 1e6, ms: 1e9, s: 1e12, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3,
});

const MOST_ARROWS = 240;

function scales(place, state) {
  const perPs = (place.width - place.left) / (state.view.to - state.view.from);
  return {
    perPs,
    x: (time) => place.left + (time - state.view.from) * perPs,
    time: (x) => state.view.from + (x - place.left) / perPs,
  };
}

function draw(c, model, state, rows, place, color, found, pointed) {
  const { x, perPs } = scales(place, state), { data } = model;
  c.clearRect(0, 0, place.width, place.height);
  c.font = "11px system-ui, sans-serif";
  c.textBaseline = "middle";
  ruler(c, state, place, color);
  const seen = rows.filter((row) => row.y + row.height > place.top && row.y < place.top + place.height - RULER);
  const top = (row) => RULER + row.y - place.top;
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
  const box = (bar, line) => {
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

function marks(c, model, state, seen, top, x, perPs, color, place) {
  const { path, data } = model;
  const at = new Map(seen.map((row) => [row.lane, row]));
  c.fillStyle = color("--mark");
  eachBar(path, 0, path.start.length, state.view, place.width - place.left, (bar) => {
    const lane = path.lane[bar], row = at.get(lane) || at.get(data.lanes.parent[lane]);
    if (row) c.fillRect(x(path.start[bar]), top(row) + row.height - 4, Math.max((path.end[bar] - path.start[bar]) * perPs, 1), 2.5);
  });
}

function arrows(c, model, state, seen, top, x, color) {
  const { messages } = model.data, { bars } = model;
  const at = new Map(seen.map((row) => [row.lane, top(row) + (row.height - 2) / 2]));
  const place = (bar) => at.get(bars.lane[bar]) ?? at.get(model.data.lanes.parent[bars.lane[bar]]);
  const line = (message, strong) => {
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

function ofBar(model, bar) {
  if (bar < 0) return [];
  const { bars, data } = model, { sent, took } = data.messages;
  const carried = (model.carries.get(bars.lane[bar]) || []).filter(
    (at) => sent[at] <= bars.end[bar] && sent[at] + took[at] >= bars.start[bar]
      && bars.text[bar] === bars.text[data.messages.from[at]]);
  return [...(model.sends.get(bar) || []), ...(model.reads.get(bar) || []), ...carried];
}

const RAMPS = {
  light: ["#d7e3ef", "#8fbbe0", "#3f86c6", "#1d4f91", "#0a2348"],
  dark: ["#33404f", "#2f6599", "#4b9be0", "#9fd0f7", "#eef7ff"],
};

function shade(ramp, share) {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
  const part = (index, byte) =>
    parseInt(ramp[index].slice(1 + 2 * byte, 3 + 2 * byte), 16);
  const mixed = [0, 1, 2].map((byte) => Math.round(part(low, byte) + (at - low) * (part(low + 1, byte) - part(low, byte))));
  return `rgb(${mixed.join(",")})`;
}

function windowOf(model, range, at) {
  const frames = model.data.heat.frames;
  if (at !== null && frames) {
    const part = model.latency / frames, frame = Math.min(Math.floor(at / part), frames - 1);
    return { from: frame * part, to: (frame + 1) * part };
  }
  return range || { from: 0, to: model.latency };
}

function fit(map, width, most) {
  const xs = map.nodes.map((node) => node[1]), ys = map.nodes.map((node) => node[2]);
  const [left, right, top, bottom] = [Math.min(...xs) - 0.6, Math.max(...xs) + 0.6, Math.min(...ys) - 0.6, Math.max(...ys) + 0.6];
  const scale = Math.min(width / (right - left), most / (bottom - top), 86 / map.step);
  const margin = (width - scale * (right - left)) / 2;
  return {
    scale, height: Math.ceil(scale * (bottom - top)),
    x: (x) => margin + (x - left) * scale,
    y: (y) => (y - top) * scale,
  };
}

function drawMap(c, model, map, range, width, most, ramp, color, chosen) {
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

function drawMatrix(c, model, view, width, height, left, ramp, color, cursor) {
  const { heat, links } = model.data, high = height / links.length, part = model.latency / heat.frames;
  const x = (time) => left + ((time - view.from) * (width - left)) / (view.to - view.from);
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

function linkAt(map, width, most, px, py) {
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

const STYLE = `
.ahbm-view { --v-ground: var(--ground, #ffffff); --v-ink: var(--ink, #1b1b1b); --v-dim: var(--dim, #5f6368); --v-line: var(--line, #d8dbe0);
  --v-panel: var(--panel, #f6f7f9); --v-mark: var(--mark, #c22520); --v-arrow: #3c4754; --v-select: rgba(47,135,200,.16); color: var(--v-ink);
  background: var(--v-panel); border: 1px solid var(--v-line); border-radius: 6px; padding: 12px; min-width: 0; font: 13px/1.45 system-ui, "DejaVu Sans", sans-serif; }
.ahbm-view[data-theme="dark"] { --v-ground: var(--ground, #14161a); --v-ink: var(--ink, #e8eaed); --v-dim: var(--dim, #a0a6ae); --v-line: var(--line, #363b43);
  --v-panel: var(--panel, #1d2026); --v-mark: var(--mark, #ff6b62); --v-arrow: #c4ccd6; --v-select: rgba(125,184,240,.22); }
.ahbm-view * { box-sizing: border-box; }
.ahbm-view canvas { display: block; width: 100%; }
.ahbm-bar { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center; margin-bottom: 8px; }
.ahbm-bar strong { flex: 1 1 240px; }
.ahbm-view button, .ahbm-view input[type="search"], .ahbm-view select, .ahbm-copy { background: var(--v-ground, var(--panel)); color: var(--v-ink, var(--ink)); border: 1px solid var(--v-line, var(--line));
  border-radius: 4px; padding: 3px 9px; font: inherit; font-size: 13px; }
.ahbm-copy { margin-top: 4px; font-size: 12px; }
.ahbm-view button[aria-pressed="true"] { border-color: var(--v-ink); font-weight: 600; }
.ahbm-view input[type="search"] { flex: 0 1 190px; min-width: 110px; }
.ahbm-view input[type="range"] { flex: 1 1 120px; min-width: 80px; }
.ahbm-lanes { position: relative; overflow-y: auto; overflow-x: hidden; max-height: min(70vh, 720px); border-bottom: 1px solid var(--v-line); }
.ahbm-lanes canvas { position: sticky; top: 0; cursor: crosshair; touch-action: pan-y; }
.ahbm-view output { display: block; min-height: 2.9em; margin-top: 6px; overflow-wrap: anywhere; }
.ahbm-view output button { margin: 2px 4px 2px 0; padding: 1px 7px; font-size: 12px; }
.ahbm-legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--v-dim); margin-top: 4px; }
.ahbm-legend i { display: inline-block; width: 11px; height: 11px; margin-right: 4px; border-radius: 2px; vertical-align: -1px; }
.ahbm-stats table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 12px; margin-top: 6px; }
.ahbm-stats td, .ahbm-stats th { padding: 1px 10px 1px 0; text-align: right; border: 0; } .ahbm-stats td:first-child, .ahbm-stats th:first-child { text-align: left; }
.ahbm-heat { margin-top: 14px; border-top: 1px solid var(--v-line); padding-top: 10px; }
.ahbm-scale { display: inline-flex; align-items: center; gap: 6px; font-size: 12px; color: var(--v-ink); }
.ahbm-scale i { width: 130px; height: 11px; border: 1px solid var(--v-dim); }
.ahbm-hint { color: var(--v-dim); font-size: 12px; }
@media print { .ahbm-view button, .ahbm-view input { display: none; } .ahbm-lanes { max-height: none; } }
`;

function styled(page) {
  if (page.getElementById("ahbm-style")) return;
  const style = page.createElement("style");
  style.id = "ahbm-style";
  style.textContent = STYLE;
  page.head.append(style);
}

async function copied(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    save(new Blob([text], { type: "text/plain" }), name);
    return "saved";
  }
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function button(text, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.title = label;
  made.onclick = act;
  return made;
}

function sortable(table, name) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
  if (!heads.length || !body) return;
  const original = [...body.rows];
  heads.forEach((head, column) => {
    const cell = (head);
    cell.tabIndex = 0;
    cell.title = "sort";
    cell.setAttribute("role", "columnheader");
    const act = () => {
      const next = { "": "ascending", ascending: "descending", descending: "" }[cell.getAttribute("aria-sort") || ""] || "";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) cell.setAttribute("aria-sort", next);
      const text = (row) => row.cells[column]?.textContent || "";
      const rows = [...original];
      if (next) rows.sort((one, other) => (next === "ascending" ? 1 : -1) * compare(text(one), text(other)));
      body.append(...rows);
    };
    cell.onclick = act;
    cell.onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    };
  });
  const copy = button("copy as CSV", "copy this table as comma-separated values", async () => {
    const rows = [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent || ""));
    copy.textContent = await copied(csv(rows), `${name}.csv`);
    setTimeout(() => { copy.textContent = "copy as CSV"; }, 1500);
  });
  copy.className = "ahbm-copy";
  (table.parentElement || table).after(copy);
}

const KINDS = ({ pe: "PEs", link: "links", engine: "engines", queue: "queues", call: "calls" });
const NARROW = 560, MAP_HIGH = 460;

function mount(element, first, options = {}) {
  styled(element.ownerDocument);
  element.classList.add("ahbm-view");
  let model = decode(first);
  let state = options.permalink ? fromHash(model, location.hash) : fresh(model);
  let rows = rowsOf(model, state), found = matches(model, state.search);
  let pointed = -1, hover = (null), chosen = -1, match = -1, asked = false, matrix = false, map = 0;
  let theme = options.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  let selecting = false;

  const make = (tag, name = "") => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    return made;
  };
  const head = make("div", "ahbm-bar"), title = make("strong"), tools = make("div", "ahbm-bar");
  const search = (make("input")), hits = make("span", "ahbm-hint");
  const box = make("div", "ahbm-lanes"), spacer = make("div"), canvas = (make("canvas"));
  const told = make("output"), legend = make("div", "ahbm-legend"), stats = make("div", "ahbm-stats");
  const heat = make("div", "ahbm-heat"), heatHead = make("div", "ahbm-bar"), heatTitle = make("strong");
  const heatCanvas = (make("canvas")), heatTold = make("output");
  const scale = make("span", "ahbm-scale"), slider = (make("input"));
  element.replaceChildren(head, tools, box, told, legend, stats, heat);

  search.type = "search";
  search.placeholder = "find an operation or line";
  search.setAttribute("aria-label", "find bars by operation, source line or lane; Enter goes to the next");
  search.oninput = () => { state.search = search.value; match = -1; look(); };
  search.onkeydown = (event) => { if (event.key === "Enter") next(event.shiftKey ? -1 : 1); };
  const pngButton = button("PNG", "save the picture of the lanes", () => png(canvas, "lanes"));
  const selectButton = button("select", "a drag selects a stretch of time, as Shift and a drag do", () => {
    selecting = !selecting;
    selectButton.setAttribute("aria-pressed", String(selecting));
  });
  head.append(title,
    button("+", "zoom in", () => show(zoomed(model, state.view, 0.5, middle()))),
    button("−", "zoom out", () => show(zoomed(model, state.view, 2, middle()))),
    button("all", "show the whole run", () => show({ from: 0, to: model.latency })),
    selectButton, pngButton);
  if (options.permalink) {
    head.append(button("link", "copy the address of what is seen", async () => {
      remember();
      told.textContent = `The address of this view is ${await copied(location.href, "address.txt")}.`;
    }));
  }
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  box.append(canvas, spacer);
  slider.type = "range";
  slider.min = "0";
  slider.setAttribute("aria-label", "part of the run that the links are shown for, 0 for all of it");
  let timer = (undefined);
  const play = button("play", "go through the run", () => {
    if (timer) return stop();
    play.textContent = "stop";
    timer = setInterval(() => {
      slider.value = String((Number(slider.value) + 1) % (Number(slider.max) + 1));
      slid();
      if (slider.value === "0") stop();
    }, 90);
  });
  const mapButton = button("over time", "links as rows over time", () => { matrix = !matrix; again(); });
  const otherMap = button("other map", "another map", () => { map = (map + 1) % Math.max(model.data.maps.length, 1); again(); });
  heatHead.append(heatTitle, scale, mapButton, otherMap, button("PNG", "save the picture of the links", () => png(heatCanvas, "links")),
    button("copy as CSV", "copy how busy each link is", async () => {
      const range = heatRange();
      const table = model.data.links.map((link, at) => [link.name, (100 * load(model, at, range.from, range.to)).toFixed(1), link.busy, link.messages, link.waited, link.path]);
      heatTold.textContent = `${await copied(csv([["link", "busy (%)", "busy in the run (ps)", "messages", "waited (ps)", "on the critical path (ps)"], ...table]), "links.csv")}: ${table.length} links`;
    }));
  const timeRow = make("div", "ahbm-bar");
  timeRow.append(play, slider);
  heat.append(heatHead, heatCanvas, timeRow, heatTold);
  slider.oninput = () => { stop(); slid(); };

  function stop() {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "play";
  }
  function slid() {
    const frame = Number(slider.value), part = model.latency / Math.max(model.data.heat.frames, 1);
    state.at = frame ? (frame - 0.5) * part : null;
    again();
    remember();
  }
  const heatRange = () => windowOf(model, state.range, hover ?? state.at);
  const middle = () => (state.view.from + state.view.to) / 2;
  const left = () => (canvas.clientWidth < NARROW ? 84 : 150);
  const color = (name) => getComputedStyle(element).getPropertyValue(`--v-${name.slice(2)}`).trim();
  const colors = () => {
    const known = ({});
    return (name) => known[name] || (known[name] = color(name));
  };
  const place = () => ({
    width: canvas.clientWidth, height: Number(canvas.dataset.high), top: box.scrollTop, left: left(),
  });

  function fill() {
    title.textContent = model.data.note ? `${model.data.title}: ${model.data.note}` : model.data.title;
    canvas.setAttribute("aria-label", `${model.data.title}. Arrows pan, plus and minus zoom, 0 shows all.`);
    search.value = state.search;
    const toggles = kindsOf(model).map((kind) => {
      const made = button(KINDS[kind] || kind, `show ${KINDS[kind] || kind} below every rank`, () => {
        if (!state.kinds.delete(kind)) state.kinds.add(kind);
        made.setAttribute("aria-pressed", String(state.kinds.has(kind)));
        look();
      });
      made.setAttribute("aria-pressed", String(state.kinds.has(kind)));
      return made;
    });
    const hint = make("span", "ahbm-hint");
    hint.textContent = "Ctrl + wheel zooms, a drag moves, Shift + drag selects; a click on a bar shows its partner, on a name what is below it, a double click pins it.";
    tools.replaceChildren(search, hits, ...toggles, hint);
    const ofBars = new Set(model.bars.group), ofPath = new Set(model.path.group), all = Object.values(model.data.lanes.shares);
    const entries = (name, shown) => {
      if (!shown.length) return [];
      const bold = make("b");
      bold.textContent = name;
      return [bold, ...shown.map(([text, hue]) => {
        const entry = make("span"), swatch = make("i");
        swatch.style.background = hue;
        entry.append(swatch, text);
        return entry;
      })];
    };
    legend.replaceChildren(
      ...entries("lanes", model.data.groups.filter((_, at) => ofBars.has(at))),
      ...entries("shares of several", model.data.classes.filter((_, at) => all.some((parts) => parts[at].some(Boolean)))),
      ...entries("critical path", model.data.groups.filter((_, at) => ofPath.has(at))));
    heat.hidden = !model.data.heat.frames;
    slider.max = String(model.data.heat.frames);
    matrix = matrix || !model.data.maps.length;
    mapButton.hidden = !model.data.maps.length;
    otherMap.hidden = model.data.maps.length < 2;
    look();
    tell(state.bar);
  }

  function look() {
    rows = rowsOf(model, state);
    found = matches(model, state.search);
    hits.textContent = found ? `${found.bars.length.toLocaleString("en")} bars` : "";
    again();
    statistic();
    remember();
  }

  function show(view) {
    state.view = within(model, view);
    again();
    remember();
  }

  let due = (undefined);
  function remember() {
    if (!options.permalink) return;
    clearTimeout(due);
    due = setTimeout(() => {
      try {
        const hash = toHash(model, state);
        if (hash || location.hash.startsWith("#run&")) history.replaceState(null, "", `${location.pathname}${location.search}#${hash}`);
      } catch { /* a frame without an address */ }
    }, 150);
  }

  function again() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  }

  function context(of, width, high) {
    const ratio = window.devicePixelRatio || 1, wide = Math.round(width * ratio), tall = Math.round(high * ratio);
    if (of.width !== wide || of.height !== tall) {
      of.width = wide;
      of.height = tall;
      of.style.height = `${high}px`;
    }
    of.dataset.high = String(high);
    const c = (of.getContext("2d"));
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    return c;
  }

  function paint() {
    element.dataset.theme = theme;
    const last = rows[rows.length - 1], whole = RULER + (last ? last.y + last.height : 0) + 4;
    const most = Math.max(Math.min(innerHeight * 0.7, 720), 160), high = Math.min(whole, most);
    spacer.style.height = `${Math.max(whole - high, 0)}px`;
    const wide = box.clientWidth;
    if (!wide) return;
    const c = context(canvas, wide, high), of = colors();
    const shown = hover === null ? state : { ...state, at: hover };
    draw(c, model, shown, rows, place(), of, found, pointed);
    if (!heat.hidden) paintHeat(of);
    element.dataset.drawn = String(Number(element.dataset.drawn || 0) + 1);
  }

  function paintHeat(of) {
    const ramp = RAMPS[theme === "dark" ? "dark" : "light"], range = heatRange(), wide = heatCanvas.clientWidth || box.clientWidth;
    const drawn = model.data.maps[map % Math.max(model.data.maps.length, 1)];
    if (matrix || !drawn) {
      const high = Math.min(Math.max(model.data.links.length * 12, 60), MAP_HIGH);
      drawMatrix(context(heatCanvas, wide, high), model, state.view, wide, high, left(), ramp, of, hover ?? state.at);
      heatTitle.textContent = `${model.data.links.length} links over time, those of the critical path first`;
    } else {
      drawMap(context(heatCanvas, wide, fit(drawn, wide, MAP_HIGH).height), model, drawn, range, wide, MAP_HIGH, ramp, of, chosen);
      heatTitle.textContent = drawn.title;
    }
    mapButton.textContent = matrix ? "map" : "over time";
    const swatch = make("i");
    swatch.style.background = `linear-gradient(90deg, ${ramp.join(",")})`;
    const whole = range.from === 0 && range.to === model.latency;
    scale.replaceChildren("idle", swatch, `busy all of ${whole ? "the run" : `${time(range.from)} to ${time(range.to)}`}`);
    const frame = state.at === null ? 0 : Math.min(Math.floor((state.at * model.data.heat.frames) / model.latency), model.data.heat.frames - 1) + 1;
    slider.value = String(frame);
    slider.setAttribute("aria-valuetext", whole ? "the whole run" : `${time(range.from)} to ${time(range.to)}`);
  }

  function png(of, name) {
    const copy = document.createElement("canvas"), c = copy.getContext("2d");
    copy.width = of.width;
    copy.height = of.height;
    if (!c) return;
    c.fillStyle = color("--panel");
    c.fillRect(0, 0, copy.width, copy.height);
    c.drawImage(of, 0, 0);
    copy.toBlob((blob) => blob && save(blob, `${name}.png`));
  }

  function rowAt(y) {
    const at = y - RULER + box.scrollTop;
    return y < RULER ? undefined : rows.find((row) => at >= row.y && at < row.y + row.height);
  }

  function under(px, py) {
    const row = rowAt(py);
    if (!row || px < left()) return { bar: -1, stretch: -1 };
    const { time: of, perPs } = scales(place(), state), at = of(px), near = 3 / perPs;
    if (model.data.lanes.kind[row.lane] === "path") return { bar: -1, stretch: barAt(model.path, 0, model.path.start.length, at, near) };
    return { bar: barAt(model.bars, model.bars.first[row.lane], model.bars.first[row.lane + 1], at, near), stretch: -1 };
  }

  function described(bars, bar, lane) {
    const [what, origin] = model.data.texts[bars.text[bar]], count = bars.count[bar];
    const many = count > 1 ? `${count.toLocaleString("en")} merged, the longest ` : "";
    const length = bars.end[bar] - bars.start[bar];
    const parts = [lane, many + what, origin, model.data.groups[bars.group[bar]][0]];
    return `${parts.filter(Boolean).join(" · ")} · ${time(bars.start[bar])} to ${time(bars.end[bar])} (${time(length)})`;
  }

  const laneName = (lane) => {
    const { kind, name, parent } = model.data.lanes;
    if (kind[lane] === "queue" && parent[lane] >= 0) return name[parent[lane]];
    return parent[lane] >= 0 ? `${name[parent[lane]]}, ${name[lane]}` : name[lane];
  };

  function tell(bar, stretch = -1) {
    if (stretch >= 0) {
      const lane = model.path.lane[stretch];
      told.textContent = described(model.path, stretch, lane >= 0 ? laneName(lane) : "critical path");
      return;
    }
    if (bar < 0) {
      told.textContent = "Point at a bar to see its operation and line.";
      return;
    }
    told.replaceChildren(described(model.bars, bar, laneName(model.bars.lane[bar])));
    if (bar !== state.bar) return;
    const { messages } = model.data, line = make("div");
    const go = (text, act) => line.append(button(text, text, act));
    const some = ofBar(model, bar);
    for (const message of some.slice(0, 12)) {
      const from = messages.from[message], to = messages.to[message];
      if (from !== bar) go(`sent by ${laneName(model.bars.lane[from])}`, () => pick(from));
      if (to !== bar) go(`read by ${laneName(model.bars.lane[to])} after ${time(messages.took[message])}`, () => pick(to));
      for (const lane of linksOf(model, message)) go(`over ${model.data.lanes.name[lane].replace(/^sends ->/, `link to rank `)}`, () => reveal(lane));
    }
    if (some.length > 12) line.append(`and ${some.length - 12} more messages`);
    go("copy line", async () => { told.append(` ${await copied(model.data.texts[model.bars.text[bar]].join(" "), "line.txt")}`); });
    told.append(line);
  }

  function pick(bar) {
    state.bar = bar;
    if (bar >= 0) {
      const start = model.bars.start[bar], end = model.bars.end[bar];
      if (start > state.view.to || end < state.view.from) {
        const half = (state.view.to - state.view.from) / 2;
        state.view = within(model, { from: (start + end) / 2 - half, to: (start + end) / 2 + half });
      }
      reveal(model.bars.lane[bar]);
    }
    look();
    tell(bar);
  }

  function reveal(lane) {
    const parent = model.data.lanes.parent[lane];
    if (parent >= 0 && !rows.some((row) => row.lane === lane)) state.open.add(parent);
    rows = rowsOf(model, state);
    const row = rows.find((one) => one.lane === lane);
    if (row) {
      const seen = place().height - RULER;
      if (row.y < box.scrollTop || row.y + row.height > box.scrollTop + seen) box.scrollTop = Math.max(row.y - seen / 2, 0);
    }
    const name = model.data.lanes.name[lane];
    chosen = model.data.links.findIndex((link) => link.name === name);
    again();
    remember();
  }

  function next(step) {
    if (!found || !found.bars.length) return;
    match = (match + step + found.bars.length) % found.bars.length;
    hits.textContent = `${(match + 1).toLocaleString("en")} of ${found.bars.length.toLocaleString("en")} bars`;
    const bar = found.bars[match], text = hits.textContent;
    pick(bar);
    hits.textContent = text;
  }

  function statistic() {
    if (!state.range) {
      stats.replaceChildren();
      return;
    }
    const { kind, shares } = model.data.lanes;
    const lanes = rows.map((row) => row.lane).filter((lane) => kind[lane] !== "path" && !shares[lane]);
    const range = state.range, { groups, messages, about } = statistics(model, range, lanes), whole = range.to - range.from;
    const rowsOfTable = groups.map(([name, , ps, count]) => [name, time(ps), `${((100 * ps) / whole / Math.max(lanes.length, 1)).toFixed(1)} %`, count.toLocaleString("en")]);
    const heads = ["what", "time of all lanes", "mean of a lane", "operations"];
    const table = make("table"), caption = make("div");
    caption.textContent = `${time(range.from)} to ${time(range.to)} (${time(whole)}) on the ${lanes.length} lanes that are shown; ${messages.toLocaleString("en")} messages sent${about ? "; where bars are merged, gaps count as theirs" : ""}`;
    for (const [at, row] of [heads, ...rowsOfTable].entries()) {
      const line = make("tr");
      line.append(...row.map((text) => {
        const cell = make(at ? "td" : "th");
        cell.textContent = text;
        return cell;
      }));
      table.append(line);
    }
    stats.replaceChildren(caption, table,
      button("copy as CSV", "copy these statistics", async () => { caption.append(` (${await copied(csv([heads, ...rowsOfTable]), "selection.csv")})`); }),
      button("zoom to it", "show this stretch alone", () => show(range)),
      button("clear", "select nothing", () => { state.range = null; look(); }));
  }

  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    const { perPs, time: of } = scales(place(), state);
    if (event.ctrlKey || event.metaKey) show(zoomed(model, state.view, Math.exp(event.deltaY * 0.003), of(event.offsetX)));
    else {
      const moved = (event.deltaX || event.deltaY) / perPs;
      show({ from: state.view.from + moved, to: state.view.to + moved });
    }
  }, { passive: false });
  box.addEventListener("scroll", again);

  const held = (new Map());
  let pressed = (null);
  canvas.addEventListener("pointerdown", (event) => {
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is none */ }
    held.set(event.pointerId, event.offsetX);
    pressed = { x: event.offsetX, y: event.offsetY, moved: false, selects: (event.shiftKey || selecting) && event.offsetX >= left() };
  });
  canvas.addEventListener("pointermove", (event) => {
    const of = scales(place(), state);
    if (!held.has(event.pointerId)) {
      const at = under(event.offsetX, event.offsetY);
      pointed = at.bar;
      hover = event.offsetX >= left() ? Math.min(Math.max(of.time(event.offsetX), 0), model.latency) : null;
      tell(at.bar < 0 && at.stretch < 0 ? state.bar : at.bar, at.stretch);
      again();
      return;
    }
    const before = (held.get(event.pointerId)), other = [...held].find(([id]) => id !== event.pointerId);
    held.set(event.pointerId, event.offsetX);
    if (pressed && Math.abs(event.offsetX - pressed.x) > 3) pressed.moved = true;
    if (pressed && pressed.selects) {
      const ends = [of.time(pressed.x), of.time(event.offsetX)].map((end) => Math.min(Math.max(end, 0), model.latency));
      state.range = { from: Math.min(...ends), to: Math.max(...ends) };
      again();
    } else if (other) {
      show(zoomed(model, state.view, Math.abs(before - other[1]) / Math.max(Math.abs(event.offsetX - other[1]), 1), of.time(other[1])));
    } else {
      const moved = (before - event.offsetX) / of.perPs;
      if (pressed && pressed.moved) show({ from: state.view.from + moved, to: state.view.to + moved });
    }
  });
  const release = (event) => {
    held.delete(event.pointerId);
    const press = pressed;
    pressed = null;
    if (press && press.selects && press.moved) look();
    else if (press && !press.moved && event.type === "pointerup") clicked(event);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { hover = null; pointed = -1; tell(state.bar); again(); });

  function clicked(event) {
    const row = rowAt(event.offsetY);
    if (row && event.offsetX < left()) {
      if (event.detail === 2) {
        if (!state.pins.delete(row.lane)) state.pins.add(row.lane);
      } else if (!state.open.delete(row.lane)) state.open.add(row.lane);
      look();
      return;
    }
    const { bar, stretch } = under(event.offsetX, event.offsetY);
    if (bar >= 0) return pick(bar);
    if (stretch >= 0) {
      const lane = model.path.lane[stretch];
      if (lane >= 0) reveal(lane);
    }
    state.at = stretch < 0 && state.at === null ? Math.min(Math.max(scales(place(), state).time(event.offsetX), 0), model.latency) : null;
    state.bar = -1;
    look();
  }

  canvas.addEventListener("keydown", (event) => {
    const length = state.view.to - state.view.from;
    const pan = (by) => show({ from: state.view.from + by, to: state.view.to + by });
    const acts = ({
      ArrowLeft: () => pan(-length / 4), ArrowRight: () => pan(length / 4), a: () => pan(-length / 4), d: () => pan(length / 4),
      "+": () => show(zoomed(model, state.view, 0.5, middle())), "-": () => show(zoomed(model, state.view, 2, middle())),
      w: () => show(zoomed(model, state.view, 0.5, middle())), s: () => show(zoomed(model, state.view, 2, middle())),
      0: () => show({ from: 0, to: model.latency }), Escape: () => { state.range = null; state.bar = -1; state.at = null; look(); tell(-1); },
    });
    const act = event.ctrlKey || event.metaKey ? undefined : acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  heatCanvas.addEventListener("pointermove", (event) => {
    const drawn = model.data.maps[map], range = heatRange();
    if (matrix || !drawn) return;
    const at = linkAt(drawn, heatCanvas.clientWidth, MAP_HIGH, event.offsetX, event.offsetY);
    if (at !== chosen) { chosen = at; again(); }
    const link = model.data.links[at];
    heatTold.textContent = link ? `${link.name} · busy ${(100 * load(model, at, range.from, range.to)).toFixed(1)} % · ${link.messages.toLocaleString("en")} messages, ${link.waits.toLocaleString("en")} of them waited ${time(link.waited)} together · ${time(link.path)} of the critical path` : "";
  });
  heatCanvas.addEventListener("click", () => {
    const link = model.data.links[chosen];
    const lane = link ? model.data.lanes.name.indexOf(link.name) : -1;
    if (lane >= 0) reveal(lane);
  });
  new ResizeObserver(again).observe(element);
  if (options.permalink) {
    addEventListener("hashchange", () => {
      if (!location.hash.startsWith("#run&")) return;
      state = fromHash(model, location.hash);
      fill();
    });
  }
  fill();
  return {
    update(data) {
      const view = state.view.to - state.view.from < model.latency ? state.view : null;
      model = decode(data);
      const lanes = model.data.lanes.name.length, keep = (of) => new Set([...of].filter((lane) => lane < lanes));
      state = { ...state, bar: -1, range: null, at: null, pins: keep(state.pins), open: keep(state.open), view: view ? within(model, view) : { from: 0, to: model.latency } };
      chosen = pointed = -1;
      fill();
    },
    redraw(next) {
      if (next) theme = next;
      again();
    },
    to(rank, at) {
      const lane = model.data.lanes.name.indexOf(`rank ${rank}`);
      if (at < state.view.from || at > state.view.to) {
        const half = (state.view.to - state.view.from) / 2;
        state.view = within(model, { from: at - half, to: at + half });
      }
      state.at = at;
      state.bar = -1;
      if (lane >= 0) reveal(lane);
      look();
    },
    state: () => state,
  };
}

function render({ model, el }) {
  const inner = document.createElement("div");
  el.append(inner);
  const view = mount(inner, model.get("picture"));
  model.on("change:picture", () => view.update(model.get("picture")));
}

const widget = { render };

export { CONTRACT, csv, decode, mount, sortable };
export default widget;
