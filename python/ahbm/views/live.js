// Made of web/src by scripts/viewer.py: change it there.

const SLIDERS = ([["size", "size of one rank's array", "B"], ["bandwidth", "bandwidth of links", "GB/s"], ["latency", "latency of links", "ns"], ["slots", "slots of a queue", ""]]);


function swept(rows) {
  const sizes = [...new Set(rows.map((row) => row.size))], names = [...new Set(rows.map((row) => row.name))];
  const best = new Map(sizes.map((size) => [size, Math.min(...rows.filter((row) => row.size === size).map((row) => row.ps ?? Infinity))]));
  const line = (kind, texts) => {
    const row = document.createElement("tr");
    row.append(...texts.map((text) => {
      const cell = document.createElement(kind);
      cell.textContent = text;
      return cell;
    }));
    return row;
  };
  const head = line("th", ["algorithm", ...sizes.map((size) => size < 1 << 20 ? `${size / 1024} KiB` : `${size / (1 << 20)} MiB`)]);
  return [head, ...names.map((name) => {
    const found = sizes.map((size) => rows.find((row) => row.name === name && row.size === size));
    const row = line("td", [name, ...found.map((one) => one ? one.code || time(one.ps || 0) : "")]);
    found.forEach((one, at) => {
      if (one && one.ps !== undefined && one.ps === best.get(one.size)) row.cells[at + 1].className = "best";
      if (one && one.percent) row.cells[at + 1].title = `${one.percent.toFixed(1)} % of the bound`;
    });
    return row;
  })];
}

async function live(root, token) {
  const ask = async (path, body = undefined) => {
    const answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers: { "X-AHBM-Token": token, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const begin = (await ask("/api/state"));
  const part = (name) => (root.querySelector(`[data-part="${name}"]`));
  const picked = (part("item")), editor = (part("editor"));
  const told = part("told"), failed = part("failed"), gutter = part("gutter"), save = (part("save")), delta = part("delta");
  picked.append(...begin.items.map((item, at) => new Option(`${item.name}${item.kind === "algorithm" ? "" : ` (${item.kind})`}`, String(at))));
  let view = (null), last = 0, base = 0, lines = ([]);
  let stamp = "", dirty = false, busy = false, again = (null);
  let sweeps = 0;
  const rank = (part("rank")), element = (part("element"));
  part("ask").onclick = origin;
  part("compare").onclick = () => { sweep().catch((error) => { part("progress").textContent = String(error); }); };
  const kind = () => begin.items[Number(picked.value)]?.kind || "";

  const moved = ({});
  const sliders = SLIDERS.filter(([name]) => name === "size" || begin.values[name] !== undefined).map(([name, label, unit]) => {
    const row = document.createElement("label"), range = document.createElement("input"), shown = document.createElement("output");
    const start = name === "size" ? begin.bytes : begin.values[name];
    const value = () => {
      if (name === "size") return 2 ** Number(range.value);
      if (name === "slots") return Math.round(2 ** Number(range.value));
      return Number((start * 2 ** Number(range.value)).toPrecision(3));
    };
    const [least, most, step, at] = name === "size" ? [6, 22, 1, Math.log2(start)] : name === "slots" ? [0, 7, 1, Math.log2(start)] : [-5, 5, 0.125, 0];
    Object.assign(range, { type: "range", min: least, max: most, step, value: at });
    const tell = () => { shown.textContent = `${value().toLocaleString("en")} ${unit}`; };
    range.oninput = () => {
      moved[name] = value();
      tell();
      run(name === "size");
    };
    tell();
    row.append(label, range, shown);
    return { row, reset: () => { range.value = String(at); delete moved[name]; tell(); } };
  });
  part("sliders").append(...sliders.map((slider) => slider.row));
  part("reset").onclick = () => { sliders.forEach((slider) => slider.reset()); run(true); };

  async function run(check) {
    if (busy) { again = Boolean(again) || check; return; }
    busy = true;
    const began = performance.now();
    try {
      show(await ask("/api/run", { item: Number(picked.value), ...moved, check }));
      root.dataset.took = String(Math.round(performance.now() - began));
    } catch (error) {
      fail(String(error), []);
    }
    busy = false;
    root.dataset.ran = String(Number(root.dataset.ran || 0) + 1);
    if (again !== null) { const next = again; again = null; run(next); }
  }

  function fail(text, where) {
    failed.hidden = false;
    failed.textContent = text;
    lines = where;
    number();
    const first = lines[0];
    if (first) {
      const high = editor.scrollHeight / Math.max(editor.value.split("\n").length, 1);
      if (document.activeElement !== editor) editor.scrollTop = Math.max((first - 6) * high, 0);
    }
  }

  function show(answer) {
    if (answer.error) {
      const name = (begin.items[Number(picked.value)]?.name || "").split(/[\\/]/).pop();
      fail(answer.error.text, answer.error.lines.filter((line) => line.file === name).map((line) => line.line));
      return;
    }
    failed.hidden = true;
    lines = [];
    number();
    told.replaceChildren(...(answer.told || []).map((sentence) => {
      const line = document.createElement("p");
      line.textContent = sentence;
      return line;
    }));
    const now = answer.latency_ps || 0;
    base = base || now;
    delta.textContent = now === base ? time(now) : `${time(now)}, ${(100 * (now / base - 1)).toFixed(1)} % of the first; ${last ? `${(100 * (now / last - 1)).toFixed(1)} % of the one before` : ""}`;
    last = now;
    if (!answer.picture) return;
    if (view) view.update(answer.picture);
    else view = mount(part("picture"), answer.picture, { permalink: true, theme: document.documentElement.dataset.theme });
  }

  async function origin() {
    const list = part("steps"), told = part("origin");
    try {
      const found = await ask("/api/origin", { item: Number(picked.value), ...moved, rank: Number(rank.value), element: Number(element.value) });
      told.textContent = found.error ? found.error.text : found.told + (found.more ? ` (${found.more} earlier operations are not shown)` : "");
      list.replaceChildren(...(found.steps || []).map((step) => {
        const line = document.createElement("li"), button = document.createElement("button");
        button.type = "button";
        button.textContent = `${time(step.at)} · rank ${step.rank} · ${step.text}`;
        button.onclick = () => view?.to(step.rank, step.at);
        line.append(button);
        return line;
      }));
    } catch (error) {
      told.textContent = String(error);
    }
  }

  async function sweep() {
    const table = part("sweep"), progress = part("progress");
    let now = await ask("/api/sweep", { ...moved });
    const turn = ++sweeps;
    for (;;) {
      progress.textContent = `${now.rows.length} of ${now.cases} cases`;
      table.replaceChildren(...swept(now.rows));
      if (now.rows.length >= now.cases || turn !== sweeps) return;
      await new Promise((done) => setTimeout(done, 150));
      now = await ask("/api/sweep");
      if (turn !== sweeps) return;
    }
  }

  function number() {
    const count = editor.value.split("\n").length;
    gutter.replaceChildren(...Array.from({ length: count }, (_, at) => {
      const line = document.createElement("span");
      line.textContent = String(at + 1);
      if (lines.includes(at + 1)) line.className = "bad";
      return line;
    }));
    gutter.scrollTop = editor.scrollTop;
  }

  async function choose() {
    base = last = 0;
    dirty = false;
    const module = kind() === "module";
    part("code").hidden = !module;
    if (module) {
      const found = await ask(`/api/source/${Number(picked.value)}`);
      editor.value = found.text;
      stamp = found.stamp;
      number();
    }
    await run(true);
  }

  async function store() {
    save.disabled = true;
    try {
      const began = performance.now(), found = await ask(`/api/source/${Number(picked.value)}`, { text: editor.value, ...moved });
      stamp = found.stamp;
      dirty = false;
      show(found);
      root.dataset.saved = String(Math.round(performance.now() - began));
      root.dataset.ran = String(Number(root.dataset.ran || 0) + 1);
    } catch (error) {
      fail(String(error), []);
    }
    save.disabled = false;
  }

  editor.oninput = () => { dirty = true; number(); };
  editor.onscroll = () => { gutter.scrollTop = editor.scrollTop; };
  editor.onkeydown = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      store();
    } else if (event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      editor.setRangeText("    ", editor.selectionStart, editor.selectionEnd, "end");
      editor.oninput?.(new InputEvent("input"));
    }
  };
  save.onclick = store;
  picked.onchange = choose;
  part("theme").onclick = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    view?.redraw(next);
  };
  setInterval(async () => {
    if (kind() !== "module" || busy || dirty || document.hidden) return;
    try {
      const found = await ask(`/api/stamp/${Number(picked.value)}`);
      if (found.stamp !== stamp && !dirty) await choose();
    } catch { /* the server has ended */ }
  }, 400);
  await choose();
}

