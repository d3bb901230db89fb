// The viewer: lanes over time, what was clicked, a selection's statistics, links on the same cursor.
import { decode, linksOf, load } from "./contract.js";
import { draw, ofBar, scales } from "./draw.js";
import { RAMPS, drawMap, drawMatrix, fit, linkAt, windowOf } from "./heat.js";
import { styled } from "./style.js";
import { button, copied, save } from "./tables.js";
import { RULER, barAt, fromHash, fresh, kindsOf, matches, rowsOf, statistics, toHash, within, zoomed } from "./view.js";
import { csv, time } from "./words.js";

/** @typedef {import("./contract.js").Data} Data */

const KINDS = /** @type {Record<string, string>} */ ({ pe: "PEs", link: "links", engine: "engines", queue: "queues", call: "calls" });
const NARROW = 560, MAP_HIGH = 460;

/**
 * Shows a picture in an element.
 * @param {HTMLElement} element
 * @param {Data} first
 * @param {{theme?: string, permalink?: boolean}} [options]
 * @returns {{update: (data: Data) => void, redraw: (theme?: string) => void, to: (rank: number, at: number) => void, state: () => import("./view.js").State}}
 */
export function mount(element, first, options = {}) {
  styled(element.ownerDocument);
  element.classList.add("ahbm-view");
  let model = decode(first);
  let state = options.permalink ? fromHash(model, location.hash) : fresh(model);
  let rows = rowsOf(model, state), found = matches(model, state.search);
  let pointed = -1, hover = /** @type {number | null} */ (null), chosen = -1, match = -1, asked = false, matrix = false, map = 0;
  let theme = options.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  let selecting = false;

  const make = (/** @type {string} */ tag, /** @type {string} */ name = "") => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    return made;
  };
  const head = make("div", "ahbm-bar"), title = make("strong"), tools = make("div", "ahbm-bar");
  const search = /** @type {HTMLInputElement} */ (make("input")), hits = make("span", "ahbm-hint");
  const box = make("div", "ahbm-lanes"), spacer = make("div"), canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
  const told = make("output"), legend = make("div", "ahbm-legend"), stats = make("div", "ahbm-stats");
  const heat = make("div", "ahbm-heat"), heatHead = make("div", "ahbm-bar"), heatTitle = make("strong");
  const heatCanvas = /** @type {HTMLCanvasElement} */ (make("canvas")), heatTold = make("output");
  const scale = make("span", "ahbm-scale"), slider = /** @type {HTMLInputElement} */ (make("input"));
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
  let timer = /** @type {ReturnType<typeof setInterval> | undefined} */ (undefined);
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
  const color = (/** @type {string} */ name) => getComputedStyle(element).getPropertyValue(`--v-${name.slice(2)}`).trim();
  const colors = () => {
    const known = /** @type {Record<string, string>} */ ({});
    return (/** @type {string} */ name) => known[name] || (known[name] = color(name));
  };
  const place = () => ({
    width: canvas.clientWidth, height: Number(canvas.dataset.high), top: box.scrollTop, left: left(),
  });

  /** Whatever follows from the data. */
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
    const entries = (/** @type {string} */ name, /** @type {[string, string][]} */ shown) => {
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

  /** Rows and matches, anew; then the picture. */
  function look() {
    rows = rowsOf(model, state);
    found = matches(model, state.search);
    hits.textContent = found ? `${found.bars.length.toLocaleString("en")} bars` : "";
    again();
    statistic();
    remember();
  }

  function show(/** @type {import("./view.js").Window} */ view) {
    state.view = within(model, view);
    again();
    remember();
  }

  let due = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
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

  function context(/** @type {HTMLCanvasElement} */ of, /** @type {number} */ width, /** @type {number} */ high) {
    const ratio = window.devicePixelRatio || 1, wide = Math.round(width * ratio), tall = Math.round(high * ratio);
    if (of.width !== wide || of.height !== tall) {
      of.width = wide;
      of.height = tall;
      of.style.height = `${high}px`;
    }
    of.dataset.high = String(high);
    const c = /** @type {CanvasRenderingContext2D} */ (of.getContext("2d"));
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

  function paintHeat(/** @type {(name: string) => string} */ of) {
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

  function png(/** @type {HTMLCanvasElement} */ of, /** @type {string} */ name) {
    const copy = document.createElement("canvas"), c = copy.getContext("2d");
    copy.width = of.width;
    copy.height = of.height;
    if (!c) return;
    c.fillStyle = color("--panel");
    c.fillRect(0, 0, copy.width, copy.height);
    c.drawImage(of, 0, 0);
    copy.toBlob((blob) => blob && save(blob, `${name}.png`));
  }

  /** The lane at a point of the canvas. */
  function rowAt(/** @type {number} */ y) {
    const at = y - RULER + box.scrollTop;
    return y < RULER ? undefined : rows.find((row) => at >= row.y && at < row.y + row.height);
  }

  function under(/** @type {number} */ px, /** @type {number} */ py) {
    const row = rowAt(py);
    if (!row || px < left()) return { bar: -1, stretch: -1 };
    const { time: of, perPs } = scales(place(), state), at = of(px), near = 3 / perPs;
    if (model.data.lanes.kind[row.lane] === "path") return { bar: -1, stretch: barAt(model.path, 0, model.path.start.length, at, near) };
    return { bar: barAt(model.bars, model.bars.first[row.lane], model.bars.first[row.lane + 1], at, near), stretch: -1 };
  }

  function described(/** @type {import("./contract.js").Bars} */ bars, /** @type {number} */ bar, /** @type {string} */ lane) {
    const [what, origin] = model.data.texts[bars.text[bar]], count = bars.count[bar];
    const many = count > 1 ? `${count.toLocaleString("en")} merged, the longest ` : "";
    const length = bars.end[bar] - bars.start[bar];
    const parts = [lane, many + what, origin, model.data.groups[bars.group[bar]][0]];
    return `${parts.filter(Boolean).join(" · ")} · ${time(bars.start[bar])} to ${time(bars.end[bar])} (${time(length)})`;
  }

  const laneName = (/** @type {number} */ lane) => {
    const { kind, name, parent } = model.data.lanes;
    if (kind[lane] === "queue" && parent[lane] >= 0) return name[parent[lane]];
    return parent[lane] >= 0 ? `${name[parent[lane]]}, ${name[lane]}` : name[lane];
  };

  /** Says what a bar is; of the one that was clicked also its partners and links. */
  function tell(/** @type {number} */ bar, /** @type {number} */ stretch = -1) {
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
    const go = (/** @type {string} */ text, /** @type {() => void} */ act) => line.append(button(text, text, act));
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

  /** Chooses a bar and shows where it is. */
  function pick(/** @type {number} */ bar) {
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

  /** Opens and scrolls to a lane. */
  function reveal(/** @type {number} */ lane) {
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

  function next(/** @type {number} */ step) {
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

  const held = /** @type {Map<number, number>} */ (new Map());
  let pressed = /** @type {{x: number, y: number, moved: boolean, selects: boolean} | null} */ (null);
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
    const before = /** @type {number} */ (held.get(event.pointerId)), other = [...held].find(([id]) => id !== event.pointerId);
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
  const release = (/** @type {PointerEvent} */ event) => {
    held.delete(event.pointerId);
    const press = pressed;
    pressed = null;
    if (press && press.selects && press.moved) look();
    else if (press && !press.moved && event.type === "pointerup") clicked(event);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { hover = null; pointed = -1; tell(state.bar); again(); });

  function clicked(/** @type {PointerEvent} */ event) {
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
    const pan = (/** @type {number} */ by) => show({ from: state.view.from + by, to: state.view.to + by });
    const acts = /** @type {Record<string, () => void>} */ ({
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
      const lanes = model.data.lanes.name.length, keep = (/** @type {Set<number>} */ of) => new Set([...of].filter((lane) => lane < lanes));
      state = { ...state, bar: -1, range: null, at: null, pins: keep(state.pins), open: keep(state.open), view: view ? within(model, view) : { from: 0, to: model.latency } };
      chosen = pointed = -1;
      fill();
    },
    redraw(next) {
      if (next) theme = next;
      again();
    },
    /** Shows a rank's lane at a time. */
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

/**
 * As anywidget asks: shows `model`'s `picture`, and again whenever it changes.
 * @param {{model: {get: (name: string) => any, on: (name: string, act: () => void) => void}, el: HTMLElement}} given
 */
function render({ model, el }) {
  const inner = document.createElement("div");
  el.append(inner);
  const view = mount(inner, model.get("picture"));
  model.on("change:picture", () => view.update(model.get("picture")));
}

export const widget = { render };
