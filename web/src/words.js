// Times in words, and rows as text for other programs.

/** @param {number} ps */
export function unitOf(ps) {
  return /** @type {[number, string]} */ (ps >= 1e9 ? [1e9, "ms"] : ps >= 1e6 ? [1e6, "us"] : ps >= 1e3 ? [1e3, "ns"] : [1, "ps"]);
}

/** @param {number} ps */
export function time(ps) {
  const [size, unit] = unitOf(ps);
  return `${Number((ps / size).toPrecision(5))} ${unit}`;
}

/**
 * Rows as comma-separated values. A spreadsheet runs a cell that begins with one of =+-@, so text that does gets a "'".
 * @param {(string | number)[][]} rows
 */
export function csv(rows) {
  const cell = (/** @type {string | number} */ value) => {
    let text = String(value);
    if (/^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+( ?%)?$/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/**
 * How two cells are ordered: numbers as numbers, with their units left out; what is no number comes last.
 * @param {string} one
 * @param {string} other
 */
export function compare(one, other) {
  const number = (/** @type {string} */ text) => {
    const found = /^[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?/i.exec(text.trim());
    return found ? Number(found[0].replaceAll(",", "")) * (SIZES[text.trim().slice(found[0].length).trim()] || 1) : NaN;
  };
  const [a, b] = [number(one), number(other)];
  if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
  if (Number.isNaN(a) !== Number.isNaN(b)) return Number.isNaN(a) ? 1 : -1;
  return one.localeCompare(other, "en", { numeric: true });
}

const SIZES = /** @type {Record<string, number>} */ ({
  ps: 1, ns: 1e3, us: 1e6, ms: 1e9, s: 1e12, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3,
});
