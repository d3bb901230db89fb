"""How quick pages are in a browser: a table of docs/records/measurements.md.

    python benches/pages.py

The bytes and the seconds of `ahbm report`; in a headless Chromium that draws without a GPU, the time to the picture,
and the frames a second while the timeline is moved and made larger and smaller in each frame. Then, of `ahbm view`,
the time from a slider of the bandwidth to its picture, and from a saved module to its answer. Needs chromium and the
extra `view`.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ahbm.base import packaged
from support.browser import CHROMIUM, Tab, browser

RUNS = {
    "16 ranks": ("-t", "npu_torus_4x4"),
    "256 ranks": ("-t", "npu_ring_8", "--set", "system.sips.count=256"),
    "1.04 M operations": ("-t", "npu_ring_8", "--set", "system.sips.count=386", "--no-data"),
}
COMMON = ("all_reduce", "-a", "ring_allreduce", "--sizes", "1M")
FRAMES = 120
TIMES = 9
"""Times that a slider is moved, and that a module is saved."""
DRAWN = "document.querySelector('.ahbm-view')?.dataset.drawn"
MOVING = """(async () => {
  const canvas = document.querySelector(".ahbm-lanes canvas");
  canvas.scrollIntoView({ block: "center" });
  const box = canvas.getBoundingClientRect(), view = document.querySelector(".ahbm-view");
  const wheel = (deltaX, deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", { deltaX, deltaY, ctrlKey: !deltaX,
    clientX: box.x + 0.6 * box.width, clientY: box.y + 60, bubbles: true, cancelable: true }));
  const next = () => new Promise(requestAnimationFrame), times = [], seen = new Set();
  await next();
  for (let at = 0; at < FRAMES; at++) {
    const began = performance.now();
    if (at % 3 === 2) wheel(60, 0); else wheel(0, at % 24 < 12 ? -120 : 120);
    await next();
    times.push(performance.now() - began);
    seen.add(view.dataset.drawn);
  }
  return [times, seen.size];
})()""".replace("FRAMES", str(FRAMES))
SLIDER = """(async () => {
  const root = document.getElementById("root"), slider = document.querySelectorAll("[data-part=sliders] input")[1];
  const before = root.dataset.ran;
  slider.value = Number(slider.value) + (Number(slider.value) < Number(slider.max) ? 1 : -1);
  slider.oninput();
  while (root.dataset.ran === before) await new Promise(requestAnimationFrame);
  return Number(root.dataset.took);
})()"""
SAVE = """(async () => {
  const root = document.getElementById("root"), editor = document.querySelector("[data-part=editor]");
  const before = root.dataset.ran;
  editor.value += "\\n"; editor.oninput();
  document.querySelector("[data-part=save]").click();
  while (root.dataset.ran === before) await new Promise(requestAnimationFrame);
  return Number(root.dataset.saved);
})()"""


def pages(tab: Tab, folder: Path) -> None:
    """One row for each page."""
    print("| page | bytes | written, s of processor time | to the picture, s | frames/s | slowest frame, ms |")
    print("|---|---|---|---|---|---|")
    for name, words in RUNS.items():
        file = folder / f"{name.split()[0]}.html"
        command = [sys.executable, "-m", "ahbm", "report", *COMMON, *words, "-o", str(file), "--ccl", str(packaged.CCL)]
        used = time_of_children()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        cpu = time_of_children() - used
        took = min(tab.open(file.as_uri(), DRAWN) for _ in range(3))
        times, drawn = tab.run(MOVING)
        assert drawn > FRAMES / 2, "the picture stands still"
        rate = 1000 * len(times) / sum(times)
        print(f"| {name} | {file.stat().st_size:,} | {cpu:.2f} | {took:.2f} | {rate:.0f} | {max(times):.0f} |")


def time_of_children() -> float:
    """Seconds of processor time of all that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def live(tab: Tab, folder: Path) -> None:
    """What `ahbm view` takes to answer."""
    subprocess.run([sys.executable, "-m", "ahbm", "new", "mine"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "ahbm", "view", "algorithms/mine.py", "-t", "npu_torus_4x4"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as served:
        assert served.stdout is not None
        address = next(found[0] for line in served.stdout if (found := re.search(r"http://\S+", line)))
        try:
            tab.open(address, "document.getElementById('root')?.dataset.ran")
            tab.wait(DRAWN)
            for name, script in (("slider to picture", SLIDER), ("saved to seen", SAVE)):
                took = [tab.run(script) for _ in range(TIMES)]
                print(f"| {name}, 16 ranks | median {statistics.median(took):.0f} ms, slowest {max(took):.0f} ms |")
                time.sleep(0.5)
        finally:
            served.terminate()


def main() -> None:
    if CHROMIUM is None:
        raise SystemExit("chromium is not installed")
    with tempfile.TemporaryDirectory() as name, browser(Path(name) / "profile") as tab:
        tab.size(1400, 1000)
        pages(tab, Path(name))
        print("\n| `ahbm view` | |\n|---|---|")
        live(tab, Path(name))
        if tab.problems:
            raise SystemExit(f"the browser's console: {tab.problems[:4]}")


if __name__ == "__main__":
    main()
