"""Colours that mean the same on every page, on white and on black, also to the colour-blind."""

from __future__ import annotations

SERIES = ("#2f87c8", "#e0692a", "#1aa37f", "#cc79a7", "#d99a1c", "#6fb7e0", "#a39414")
"""Of algorithms: after Okabe and Ito, lighter."""
LIMIT = "#8a8a8a"
"""Of bounds and peaks."""

CATEGORIES = {
    "dispatch": "#8a8a8a",
    "DMA": "#d99a1c",
    "link serialisation": "#2f87c8",
    "link contention": "#e0692a",
    "wire latency": "#6fb7e0",
    "slot I/O": "#1aa37f",
    "credit": "#a39414",
    "math": "#cc79a7",
    "delay": "#b7b7b7",
    "waiting for message": "#7d6bb3",
    "waiting for slot": "#6d630b",
    "waiting for counter": "#9c8ec9",
    "waiting for barrier": "#bdb3dd",
    "waiting for link": "#9c4210",
    "waiting for engine": "#8a5f0c",
    "waiting for transfer": "#1d5686",
    "idle after its end": "#9fb0c0",
}
"""By what time was spent on. Waits are darker than what they wait for."""

KINDS = {
    "load": "#d99a1c",
    "store": "#b0791a",
    "copy": "#e8c06a",
    "send": "#2f87c8",
    "recv": "#7d6bb3",
    "wait": "#9c8ec9",
    "signal": "#1aa37f",
    "barrier": "#bdb3dd",
    "math": "#cc79a7",
    "delay": "#b7b7b7",
}
"""By kind of operation."""

_KIND_OF = {"await": "wait", "acquire": "wait", "fence": "signal", "recv_async": "recv", "end": "delay"}

USE = ("#d7e3ef", "#8fbbe0", "#3f86c6", "#1d4f91", "#0a2348")
"""From idle to busy all the time, ever darker; on panels that are light."""


def kind(what: str) -> str:
    """The kind of an operation that is told in words: a key of `KINDS`."""
    first = what.removeprefix("post ").partition("(")[0].partition(" ")[0]
    named = _KIND_OF.get(first, first)
    return named if named in KINDS else "math"


def series(count: int) -> list[str]:
    """The colours of `count` series, in order."""
    return [SERIES[index % len(SERIES)] for index in range(count)]


def ink_on(color: str) -> str:
    """Black or white, whichever is easier to read on this colour (#rrggbb)."""
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, color))


def contrast(one: str, other: str) -> float:
    """Of two colours (#rrggbb), 1 to 21, as the Web Content Accessibility Guidelines define it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
