// Tables of a page that can be sorted and copied, and pictures that can be taken along.
import { compare, csv } from "./words.js";

/**
 * Copies a text, or offers it as a file where nothing can be copied.
 * @param {string} text
 * @param {string} name
 * @returns {Promise<string>} what was done, in words
 */
export async function copied(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    save(new Blob([text], { type: "text/plain" }), name);
    return "saved";
  }
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * @param {string} text
 * @param {string} label
 * @param {() => unknown} act
 */
export function button(text, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.title = label;
  made.onclick = act;
  return made;
}

/**
 * Makes the heads of a table sort its rows, and adds a button that copies it.
 * @param {HTMLTableElement} table
 * @param {string} name of the file, where it is saved
 */
export function sortable(table, name) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
  if (!heads.length || !body) return;
  const original = [...body.rows];
  heads.forEach((head, column) => {
    const cell = /** @type {HTMLElement} */ (head);
    cell.tabIndex = 0;
    cell.title = "sort";
    cell.setAttribute("role", "columnheader");
    const act = () => {
      const next = { "": "ascending", ascending: "descending", descending: "" }[cell.getAttribute("aria-sort") || ""] || "";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) cell.setAttribute("aria-sort", next);
      const text = (/** @type {HTMLTableRowElement} */ row) => row.cells[column]?.textContent || "";
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
