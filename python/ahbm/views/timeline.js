// A timeline on a canvas: a lane for each PE, the critical path above them. Wheel or pinch zooms, a drag pans, a
// pointer over a bar names it. No library, no network.
"use strict";
const TIMELINE = { ruler: 22, lane: 16, narrow: 480 };

function timelineView(element, data) {
  const canvas = document.createElement("canvas");
  const told = document.createElement("output");
  const all = { from: 0, to: Math.max(data.latency, 1) };
  let view = { ...all };
  let pointed = null;
  const ofLanes = byLane(data.operations, data.lanes.length);
  const waitsOfLanes = byLane(data.waits, data.lanes.length);
  const pathOfLanes = byLane(data.path, data.lanes.length);

  element.append(heading(), canvas, told, legend());
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${data.title}. Arrows pan, plus and minus zoom, 0 shows all.`);
  tell(null);

  function heading() {
    const head = document.createElement("div");
    head.className = "timeline-head";
    const title = document.createElement("strong");
    title.textContent = data.note ? `${data.title}: ${data.note}` : data.title;
    const buttons = document.createElement("span");
    for (const [name, label, act] of [
      ["+", "zoom in", () => zoom(0.5, middle())],
      ["−", "zoom out", () => zoom(2, middle())],
      ["all", "show all", () => show(all)],
    ]) {
      const button = document.createElement("button");
      button.textContent = name;
      button.setAttribute("aria-label", label);
      button.onclick = act;
      buttons.append(button);
    }
    head.append(title, buttons);
    return head;
  }

  function legend() {
    const list = document.createElement("div");
    list.className = "timeline-legend";
    const used = (bars, groups) => groups.filter((_, index) => bars.group.includes(index));
    entries("operations", used(data.operations, data.kinds));
    entries("of them waits", used(data.waits, data.categories));
    entries("critical path", used(data.path, data.categories));
    function entries(title, groups) {
      const name = document.createElement("b");
      name.textContent = title;
      list.append(name);
      for (const [text, color] of groups) {
        const entry = document.createElement("span");
        const swatch = document.createElement("i");
        swatch.style.background = color;
        entry.append(swatch, text);
        list.append(entry);
      }
    }
    return list;
  }

  function byLane(bars, count) {
    const found = Array.from({ length: count }, () => []);
    bars.lane.forEach((lane, index) => lane >= 0 && found[lane].push(index));
    return found;
  }

  const width = () => canvas.clientWidth;
  const left = () => (width() < TIMELINE.narrow ? 74 : 132);
  const scale = () => (width() - left()) / (view.to - view.from);
  const x = (time) => left() + (time - view.from) * scale();
  const time = (px) => view.from + (px - left()) / scale();
  const middle = () => (view.from + view.to) / 2;
  const top = (lane) => TIMELINE.ruler + (lane + 1) * TIMELINE.lane + 4;

  function show(next) {
    const length = Math.min(Math.max(next.to - next.from, 10), all.to);
    const from = Math.min(Math.max(next.from, 0), all.to - length);
    view = { from, to: from + length };
    draw();
  }

  function zoom(factor, at) {
    show({ from: at - (at - view.from) * factor, to: at + (view.to - at) * factor });
  }

  function pan(ps) {
    show({ from: view.from + ps, to: view.to + ps });
  }

  function unit() {
    const length = view.to - view.from;
    return length >= 2e9 ? [1e9, "ms"] : length >= 2e6 ? [1e6, "us"] : length >= 2e3 ? [1e3, "ns"] : [1, "ps"];
  }

  function said(ps) {
    const [size, name] = ps >= 1e9 ? [1e9, "ms"] : ps >= 1e6 ? [1e6, "us"] : ps >= 1e3 ? [1e3, "ns"] : [1, "ps"];
    return `${Number((ps / size).toPrecision(5))} ${name}`;
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const high = top(data.lanes.length) + 4;
    canvas.style.height = `${high}px`;
    canvas.width = width() * ratio;
    canvas.height = high * ratio;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.clearRect(0, 0, width(), high);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    ruler(c, high, color);
    c.fillStyle = color("--ink");
    label(c, "critical path", TIMELINE.ruler + TIMELINE.lane / 2, true);
    data.lanes.forEach((name, lane) => label(c, name, top(lane) + TIMELINE.lane / 2, false));
    c.save();
    c.beginPath();
    c.rect(left(), 0, width() - left(), high);
    c.clip();
    bars(c, data.path, data.path.lane.keys(), TIMELINE.ruler, TIMELINE.lane - 2, data.categories);
    ofLanes.forEach((indexes, lane) => bars(c, data.operations, indexes, top(lane), TIMELINE.lane - 2, data.kinds));
    waitsOfLanes.forEach((indexes, lane) => bars(c, data.waits, indexes, top(lane), TIMELINE.lane - 2, data.categories));
    c.fillStyle = color("--mark");
    pathOfLanes.forEach((indexes, lane) => marks(c, indexes, top(lane) + TIMELINE.lane - 4));
    if (pointed) {
      const { bars: kind, index, y } = pointed;
      c.strokeStyle = color("--ink");
      c.lineWidth = 2;
      c.strokeRect(x(kind.start[index]), y, Math.max(kind.length[index] * scale(), 1), TIMELINE.lane - 2);
    }
    c.restore();
  }

  function label(c, text, y, bold) {
    c.font = `${bold ? "600 " : ""}11px system-ui, sans-serif`;
    const short = width() < TIMELINE.narrow ? text.replace(" cube ", "·").replace(" pe ", "·") : text;
    c.fillText(short, 0, y, left() - 6);
  }

  function ruler(c, high, color) {
    const [size, name] = unit();
    const rough = (view.to - view.from) / size / Math.max(width() / 110, 2);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    for (let at = Math.ceil(view.from / size / step) * step; at <= view.to / size; at += step) {
      const px = x(at * size);
      c.fillStyle = color("--line");
      c.fillRect(px, TIMELINE.ruler - 4, 1, high);
      const text = `${Number(at.toPrecision(10))} ${name}`;
      if (px + c.measureText(text).width < width()) {
        c.fillStyle = color("--dim");
        c.fillText(text, px + 2, 8);
      }
    }
  }

  function bars(c, kind, indexes, y, high, groups) {
    let drawn = -1;
    for (const index of indexes) {
      const start = x(kind.start[index]), end = start + kind.length[index] * scale();
      // Of bars within one pixel the first is seen.
      if (end < left() || start > width() || (end - start < 1 && Math.floor(start) === drawn)) continue;
      drawn = Math.floor(start);
      c.fillStyle = groups[kind.group[index]][1];
      c.fillRect(start, y, Math.max(end - start - (end - start > 4 ? 1 : 0), 1), high);
    }
  }

  function marks(c, indexes, y) {
    for (const index of indexes) {
      c.fillRect(x(data.path.start[index]), y, Math.max(data.path.length[index] * scale(), 1), 3);
    }
  }

  function under(px, py) {
    const lane = Math.floor((py - top(0)) / TIMELINE.lane);
    const onPath = py >= TIMELINE.ruler && py < top(0) - 4;
    if (px < left() || !(onPath || (lane >= 0 && lane < data.lanes.length))) return null;
    const at = time(px), near = 2 / scale();
    // A wait is drawn over its operation.
    const kinds = onPath ? [[data.path, data.path.lane.keys()]]
      : [[data.waits, waitsOfLanes[lane]], [data.operations, ofLanes[lane]]];
    for (const [kind, indexes] of kinds) {
      let best = null;
      for (const index of indexes) {
        const before = kind.start[index] - at, after = at - kind.start[index] - kind.length[index];
        if (before > near) break;
        if (after <= near && (best === null || kind.length[index] <= kind.length[best])) best = index;
      }
      if (best !== null) return { bars: kind, index: best, lane, y: onPath ? TIMELINE.ruler : top(lane) };
    }
    return null;
  }

  function tell(found) {
    pointed = found;
    if (!found) {
      told.textContent = "Wheel zooms, drag pans; point at a bar to see its operation and line.";
      return;
    }
    const { bars: kind, index, lane } = found;
    const [what, origin, place] = data.texts[kind.text[index]];
    const [group] = (kind === data.operations ? data.kinds : data.categories)[kind.group[index]];
    const start = kind.start[index], length = kind.length[index], count = kind.count[index];
    const merged = kind === data.waits ? "waits" : "operations";
    const many = count > 1 ? `${count} ${merged} merged, the longest ` : "";
    const parts = [place || data.lanes[lane], `${many}${what}`, origin, group];
    told.textContent = `${parts.filter(Boolean).join(" · ")} · ${said(start)} to ${said(start + length)} (${said(length)})`;
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / scale());
    else zoom(Math.exp(event.deltaY * 0.002), time(event.offsetX));
  }, { passive: false });

  const held = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event.offsetX);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) {
      tell(under(event.offsetX, event.offsetY));
      draw();
      return;
    }
    const other = [...held].find(([id]) => id !== event.pointerId);
    const before = held.get(event.pointerId);
    held.set(event.pointerId, event.offsetX);
    if (!other) pan((before - event.offsetX) / scale());
    else zoom(Math.abs(before - other[1]) / Math.max(Math.abs(event.offsetX - other[1]), 1), time(other[1]));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      held.delete(event.pointerId);
      tell(under(event.offsetX, event.offsetY));
      draw();
    });
  }
  canvas.addEventListener("pointerleave", () => { tell(null); draw(); });
  canvas.addEventListener("keydown", (event) => {
    const acts = {
      ArrowLeft: () => pan((view.from - view.to) / 4),
      ArrowRight: () => pan((view.to - view.from) / 4),
      "+": () => zoom(0.5, middle()),
      "-": () => zoom(2, middle()),
      0: () => show(all),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  });
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(element);
  return draw;
}
