// The data of a picture, as `python/ahbm/data/schemas/picture.schema.json` says, and the same as arrays that can be searched.

/** The version of the contract that this viewer reads. */
export const CONTRACT = 1;

/**
 * @typedef {object} Data
 * @property {number} contract
 * @property {string} title
 * @property {string} note what was merged, in words
 * @property {number} latency ps
 * @property {[string, string][]} groups what time is spent on, and its colour
 * @property {[string, string][]} classes the parts of a lane of shares, and their colours
 * @property {{name: string[], kind: string[], parent: number[], path: number[], shares: Record<string, number[][]>}} lanes
 * @property {{lanes: number[], start: number[], length: number[], group: number[], text: number[], count: number[]}} bars
 * @property {[string, string][]} texts an operation and its line
 * @property {{from: number[], to: number[], sent: number[], took: number[], count: number[], links: number[], link: number[]}} messages
 * @property {{start: number[], length: number[], lane: number[], group: number[], text: number[]}} path
 * @property {{name: string, busy: number, messages: number, waits: number, waited: number, path: number}[]} links
 * @property {{frames: number, load: number[][]}} heat
 * @property {{title: string, nodes: [string, number, number][], lines: number[][], step: number}[]} maps
 */

/**
 * @typedef {object} Bars
 * @property {Int32Array} lane
 * @property {Float64Array} start
 * @property {Float64Array} end
 * @property {Int32Array} group
 * @property {Int32Array} text
 * @property {Int32Array} count operations that were merged
 * @property {Int32Array} first per lane the first of its bars, and the end of the last lane's
 */

/**
 * @typedef {object} Model
 * @property {Data} data
 * @property {Bars} bars
 * @property {Bars} path the critical path, on one lane; its bars' lanes are those that it runs on
 * @property {Int32Array} firstLink per message the first of its links in `data.messages.link`
 * @property {Map<number, number[]>} sends messages by the bar that sends them
 * @property {Map<number, number[]>} reads messages by the bar that reads them
 * @property {Map<number, number[]>} carries messages by the lane of a link that they cross
 * @property {Map<number, number[]>} children lanes by the lane above them
 * @property {number} latency at least 1
 */

/**
 * @param {Data} data
 * @returns {Model}
 */
export function decode(data) {
  if (data.contract !== CONTRACT) {
    throw new Error(`the picture is of version ${data.contract} of the contract, this viewer reads ${CONTRACT}`);
  }
  const lanes = data.lanes.name.length, count = data.bars.start.length;
  const first = new Int32Array(lanes + 1), lane = new Int32Array(count);
  const start = new Float64Array(count), end = new Float64Array(count);
  for (let at = 0, bar = 0; at < lanes; at++) {
    first[at] = bar;
    // Starts are told from bar to bar of a lane.
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

/**
 * @param {Map<number, number[]>} found
 * @param {number} key
 * @param {number} value
 */
function add(found, key, value) {
  const values = found.get(key);
  if (values) values.push(value);
  else found.set(key, [value]);
}

/**
 * The first bar of [low, high) that ends behind a time; bars of a lane are disjoint.
 * @param {Bars} bars
 * @param {number} low
 * @param {number} high
 * @param {number} time
 */
export function firstAfter(bars, low, high, time) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * The links of a message, as lanes.
 * @param {Model} model
 * @param {number} message
 */
export function linksOf(model, message) {
  return model.data.messages.link.slice(model.firstLink[message], model.firstLink[message + 1]);
}

/**
 * How busy a link is, 0 to 1, over a window of the run.
 * @param {Model} model
 * @param {number} link position in `data.links`
 * @param {number} from
 * @param {number} to
 */
export function load(model, link, from, to) {
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
