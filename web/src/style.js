// The looks of the viewer. Where the page around it has no colours, it brings its own.

export const STYLE = `
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

/** @param {Document} page */
export function styled(page) {
  if (page.getElementById("ahbm-style")) return;
  const style = page.createElement("style");
  style.id = "ahbm-style";
  style.textContent = STYLE;
  page.head.append(style);
}
