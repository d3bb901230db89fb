"""A headless Chromium, driven by its devtools protocol over two pipes: no driver, no port, no network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

CONTRASTS = """(() => {
  const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("script, style, canvas") || !e.getClientRects().length) continue;
    const svg = e instanceof SVGElement, c = rgb(svg ? getComputedStyle(e).fill : getComputedStyle(e).color);
    const [a, b] = [light(c), light(ground(e))].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([e.textContent.trim().slice(0, 30), ratio]);
  }
  return bad;
})()"""
"""Texts whose contrast with what is behind them is less than 4.5 to 1."""


class Tab:
    """A page that is open. `problems` is what its console said as an error, and what was thrown."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._number, self._rest, self._session = read, write, 0, b"", ""
        self.problems: list[str] = []
        target = self._ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """A command of the protocol on this page."""
        return self._ask(method, parameters)

    def _ask(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        facts = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(facts["exceptionDetails"].get("exception", facts))[:500])
        if message.get("method") == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.problems.append(str([value.get("value") for value in facts["args"]]))
        if message.get("method") == "Log.entryAdded" and facts["entry"]["level"] == "error":
            self.problems.append(facts["entry"]["text"] + " " + facts["entry"].get("url", ""))
        return message

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """The window, and the theme that the user prefers."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str, ready: str = "document.body && document.body.dataset.drawn") -> float:
        """Loads a page and waits until `ready` holds. Returns the seconds that it took."""
        began = time.monotonic()
        self.ask("Page.navigate", url=address)
        self.wait(ready)
        return time.monotonic() - began

    def wait(self, ready: str, seconds: float = 60) -> None:
        """Until an expression holds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.run(f"Boolean({ready})"):
                return
            time.sleep(0.01)
        raise TimeoutError(f"{ready}: {self.problems}")

    def run(self, script: str) -> Any:
        """The value of an expression; of a promise what it becomes."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:800])
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """mousePressed, mouseReleased, mouseMoved or mouseWheel at a point of the window."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, count: int = 1) -> None:
        """A click of the left button."""
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=count)

    def box(self, selector: str) -> dict[str, float]:
        """Where the first such element is on the page."""
        found: dict[str, float] = self.run(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            "return { x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height }; })()"
        )
        return found

    def picture(self, path: Path, selector: str = "") -> None:
        """The page, or an element of it, as a PNG."""
        more = {"clip": self.box(selector) | {"scale": 1}} if selector else {}
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True, format="png", **more)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser with an empty page and a profile of its own."""
    assert CHROMIUM is not None
    (there, back), (here, forth) = os.pipe(), os.pipe()
    for end in (there, forth):
        os.set_inheritable(end, True)
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *("--remote-debugging-pipe", f"--user-data-dir={profile}", "--disable-dev-shm-usage"),
    ]
    # The protocol wants its pipes as 3 and 4.
    script = f'exec "$0" "$@" 3<&{there} 4>&{forth}'
    process = subprocess.Popen(
        ["bash", "-c", script, CHROMIUM, *options], pass_fds=(there, forth), stderr=subprocess.DEVNULL
    )
    os.close(there)
    os.close(forth)
    try:
        yield Tab(here, back)
    finally:
        os.close(back)
        process.terminate()
        process.wait(20)
        os.close(here)
