"""Charts as drawings, which need no network to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ahbm.views.colors import USE

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Drawing:
    """A chart of a page; a notebook shows it as an SVG."""

    chart: alt.TopLevelMixin
    """The chart itself. A notebook that shows this one loads scripts from the network, as altair does."""

    def to_dict(self) -> dict[str, Any]:
        """The chart as Vega-Lite, which is not validated."""
        found: dict[str, Any] = self.chart.to_dict(validate=False)
        return found

    def svg(self) -> str:
        """The chart as an SVG with words as text."""
        import vl_convert

        return str(vl_convert.vegalite_to_svg(self._in_file()))

    def png(self) -> bytes:
        """The chart as a PNG of two pixels for each of the SVG's."""
        import vl_convert

        return bytes(vl_convert.vegalite_to_png(self._in_file(), scale=2))

    def _repr_svg_(self) -> str:
        return self.svg()

    def _in_file(self) -> dict[str, Any]:
        """The chart with the width, columns and colours that otherwise the page gives it."""
        from ahbm.views.charts import FILE_WIDTH

        spec = self.to_dict()
        if spec.get("width") == "container":
            spec["width"] = FILE_WIDTH
        spec["config"] = {**spec.get("config", {}), "legend": {"columns": 4}, "range": {"ramp": list(USE)}}
        return spec
