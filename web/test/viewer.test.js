// The viewer without a browser: what it decodes, finds, sums and remembers. `node --test web/test`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CONTRACT, decode, linksOf, load } from "../src/contract.js";
import { draw, ofBar } from "../src/draw.js";
import { fit, linkAt, shade, windowOf } from "../src/heat.js";
import { barAt, eachBar, fresh, fromHash, matches, rowsOf, statistics, toHash, within, zoomed } from "../src/view.js";
import { compare, csv, time } from "../src/words.js";

/** Two ranks: each computes, one sends to the other; bars of 100 ps. */
function data(more = {}) {
  return {
    contract: CONTRACT, title: "t", note: "", latency: 1000,
    groups: [["compute", "#111111"], ["send", "#222222"], ["receive", "#333333"], ["DMA", "#444444"]],
    classes: [["compute", "#111111"]],
    lanes: {
      name: ["critical path", "rank 0", "sends ->1", "PE 0", "rank 1", "evil <img src=x onerror=alert(1)>"],
      kind: ["path", "rank", "sends", "pe", "rank", "pe"], parent: [-1, -1, 1, 1, -1, 4], path: [1, 1, 1, 1, 0, 0], shares: {},
    },
    bars: {
      lanes: [0, 2, 1, 1, 2, 0], start: [0, 200, 150, 50, 0, 300], length: [100, 100, 100, 100, 100, 200],
      group: [0, 1, 1, 0, 0, 2], text: [0, 1, 1, 0, 0, 2], count: [],
    },
    texts: [["add", "a.py:1"], ["send", "a.py:2"], ["recv", "a.py:3"]],
    messages: { from: [1], to: [5], sent: [150], took: [200], count: [1], links: [1], link: [2] },
    path: { start: [0, 500], length: [500, 500], lane: [1, 4], group: [3, 3], text: [0, 2] },
    links: [{ name: "sip0->sip1", busy: 100, messages: 1, waits: 0, waited: 0, path: 100 }],
    heat: { frames: 4, load: [[100, 0, 50, 0]] },
    maps: [{ title: "m", step: 1, nodes: [["0", 0, 0], ["1", 1, 0]], lines: [[0, 0, 0, 1, 0], [-1, 1, 0.2, 0, 0.2]] }],
    ...more,
  };
}

test("starts are told from bar to bar of a lane", () => {
  const { bars } = decode(data());
  assert.deepEqual([...bars.start], [0, 200, 150, 50, 0, 300]);
  assert.deepEqual([...bars.end], [100, 300, 250, 150, 100, 500]);
  assert.deepEqual([...bars.first], [0, 0, 2, 3, 4, 6, 6]);
});

test("another version of the contract is refused by its number", () => {
  assert.throws(() => decode(data({ contract: CONTRACT + 1 })), /version 2 of the contract/);
});

test("ranks have their sends below them, the rest is on demand, pins come first", () => {
  const model = decode(data()), state = fresh(model);
  const names = () => rowsOf(model, state).map((row) => row.lane);
  assert.deepEqual(names(), [0, 1, 2, 4]);
  state.open.add(1);
  assert.deepEqual(names(), [0, 1, 2, 3, 4]);
  state.open.clear();
  state.kinds.add("pe");
  assert.deepEqual(names(), [0, 1, 2, 3, 4, 5]);
  state.kinds.clear();
  state.pins.add(5);
  assert.deepEqual(names(), [5, 0, 1, 2, 4]);
  const rows = rowsOf(model, state);
  rows.slice(1).forEach((row, at) => assert.ok(row.y >= rows[at].y + rows[at].height));
});

test("a window stays in the run, and zooming keeps the time that it is at", () => {
  const model = decode(data());
  assert.deepEqual(within(model, { from: -50, to: 5 }), { from: 0, to: 55 });
  assert.deepEqual(within(model, { from: 900, to: 5000 }), { from: 0, to: 1000 });
  const view = zoomed(model, { from: 0, to: 1000 }, 0.1, 300);
  assert.equal((300 - view.from) / (view.to - view.from), 0.3);
  assert.equal(within(model, { from: 3, to: 3 }).to - 3, 10);
});

test("a million bars are drawn in as many steps as there are pixels", () => {
  const count = 1_000_000, wide = 1200;
  const model = decode(data({
    latency: count * 10,
    lanes: { name: ["rank 0"], kind: ["rank"], parent: [-1], path: [0], shares: {} },
    bars: { lanes: [count], start: Array.from({ length: count }, (_, at) => (at ? 10 : 0)), length: Array(count).fill(7),
      group: Array(count).fill(0), text: Array(count).fill(0), count: [] },
    messages: { from: [], to: [], sent: [], took: [], count: [], links: [], link: [] },
    path: { start: [], length: [], lane: [], group: [], text: [] },
  }));
  let drawn = 0;
  eachBar(model.bars, 0, count, { from: 0, to: count * 10 }, wide, () => { drawn++; });
  assert.ok(drawn <= 2 * wide + 2, String(drawn));
  // Every pixel has a bar: nothing is cut.
  assert.ok(drawn >= wide);
  let inside = 0;
  eachBar(model.bars, 0, count, { from: 5000, to: 6000 }, wide, () => { inside++; });
  assert.equal(inside, 100);
  // Frames at which it pans and zooms, with a canvas that does nothing.
  const nothing = new Proxy({}, { get: (_, name) => (name === "measureText" ? () => ({ width: 9 }) : () => undefined), set: () => true });
  const state = fresh(model), rows = rowsOf(model, state), place = { width: wide, height: 500, top: 0, left: 100 };
  const began = process.hrtime.bigint(), frames = 60;
  for (let frame = 0; frame < frames; frame++) {
    state.view = zoomed(model, state.view, frame % 2 ? 0.5 : 1.9, count * 3);
    draw(nothing, model, state, rows, place, () => "#000", null, -1);
  }
  const each = Number(process.hrtime.bigint() - began) / 1e6 / frames;
  assert.ok(each < 33, `${each} ms for a picture of a million bars`);
});

test("the bar at a time is the one that runs then, or the nearest within reach", () => {
  const { bars } = decode(data());
  assert.equal(barAt(bars, 0, 2, 250, 0), 1);
  assert.equal(barAt(bars, 0, 2, 150, 10), -1);
  assert.equal(barAt(bars, 0, 2, 195, 10), 1);
  assert.equal(barAt(bars, 0, 2, 104, 10), 0);
});

test("a message is found from its sender, its reader and its link", () => {
  const model = decode(data());
  assert.deepEqual(ofBar(model, 1), [0]);
  assert.deepEqual(ofBar(model, 5), [0]);
  assert.deepEqual(ofBar(model, 2), [0]);
  assert.deepEqual(ofBar(model, 0), []);
  assert.deepEqual(linksOf(model, 0), [2]);
});

test("a selection's times are those of the parts of bars within it", () => {
  const found = statistics(decode(data()), { from: 50, to: 250 }, [1, 4]);
  assert.deepEqual(found.groups.map(([name, , ps, count]) => [name, ps, count]), [["compute", 100, 2], ["send", 50, 1]]);
  assert.equal(found.messages, 1);
  assert.equal(found.about, false);
});

test("a search finds operations, lines and lanes", () => {
  const model = decode(data());
  assert.deepEqual(matches(model, "A.PY:2")?.bars, [2, 1]);
  assert.deepEqual(matches(model, "rank 1")?.bars, [4, 5]);
  assert.equal(matches(model, "  "), null);
});

test("an address brings back what was seen, and strange ones nothing", () => {
  const model = decode(data()), state = fresh(model);
  Object.assign(state, { view: { from: 100, to: 600 }, range: { from: 1, to: 2 }, at: 250, bar: 3, search: "a&b=#" });
  state.pins.add(4);
  state.open.add(1);
  state.kinds.add("pe");
  assert.deepEqual(fromHash(model, `#${toHash(model, state)}`), state);
  assert.equal(toHash(model, fresh(model)), "");
  for (const strange of ["", "#timeline", "#run&view=9-1&bar=99&pins=-1.7.x&kinds=evil&at=1e99", "#run&view=__proto__"]) {
    const found = fromHash(model, strange);
    assert.deepEqual([found.view, found.bar, [...found.pins], [...found.kinds], found.at], [{ from: 0, to: 1000 }, -1, [], [], null]);
  }
});

test("the heat of a time is that of the part in which it is", () => {
  const model = decode(data());
  assert.equal(load(model, 0, 0, 1000), 0.375);
  const part = windowOf(model, null, 600);
  assert.deepEqual(part, { from: 500, to: 750 });
  assert.equal(load(model, 0, part.from, part.to), 0.5);
  assert.deepEqual(windowOf(model, { from: 1, to: 9 }, null), { from: 1, to: 9 });
  assert.equal(shade(["#000000", "#ffffff"], 0.5), "rgb(128,128,128)");
  assert.equal(shade(["#000000", "#ffffff"], 7), "rgb(255,255,255)");
});

test("a link of a map is found where it is drawn, an idle one is none", () => {
  const map = data().maps[0], at = fit(map, 400, 300);
  assert.equal(linkAt(map, 400, 300, at.x(0.5), at.y(0)), 0);
  assert.equal(linkAt(map, 400, 300, at.x(0.5), at.y(0) + 40), -1);
});

test("words and rows for other programs", () => {
  assert.equal(time(1234567), "1.2346 us");
  assert.equal(csv([["a", 'b"c,d'], ["=1+1", "-3.5 %"]]), 'a,"b""c,d"\n\'=1+1,-3.5 %\n');
  assert.deepEqual(["10 us", "9 ns", "-", "1,000 ps", "2 ms"].sort(compare), ["1,000 ps", "9 ns", "10 us", "2 ms", "-"]);
  assert.deepEqual(["rank 10", "rank 9"].sort(compare), ["rank 9", "rank 10"]);
});
