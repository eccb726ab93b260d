"""Custom plots of the page: functions that make a figure of all results.

A function whose name begins with `plot`, in a file of the folder plots/ or named by an entry point of the group
`gt_bench.plots`, is called with a pandas DataFrame of all rows (the columns of `gt_bench.load_results`). It returns a
figure of plotly or matplotlib. Its docstring is the title and the caption. If a function fails, its error is shown.
"""

import base64
import inspect
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gt_bench.leaderboard.row import Row
from gt_bench.reports.all_results import table_of
from gt_bench.runtime.module_loader import ImportFails, imported, line_in
from gt_bench.runtime.signals import Stopped
from gt_bench.utils.entry_points import described, loaded
from gt_bench.utils.errors import UserError, missing
from gt_bench.utils.json_types import Settings
from gt_bench.utils.redact import shareable

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path("plots")
GROUP = "gt_bench.plots"
PREFIX = "plot"
BUILT_IN = {"bar", "pie", "scatter"}  # traces of vendor/plotly-basic.min.js
MOST = 4_000_000  # bytes of one figure on the page
MOST_SVG = 500_000  # bytes of a figure of matplotlib, which is otherwise a PNG
Plotter = Callable[["pd.DataFrame"], object]


class PlotError(UserError, ValueError):
    """A custom plot cannot be shown; the message names the function and the remedy."""


@dataclass(frozen=True)
class CustomPlot:
    """A plot on the page.

    Attributes:
        name: file and function, or the entry point.
        title: first line of its docstring, or the name of the function.
        caption: rest of the docstring.
        figure: data and layout for plotly.js, if it is a figure of plotly.
        image: a data URL, if it is a figure of matplotlib.
        error: why there is none.
    """

    name: str
    title: str
    caption: str = ""
    figure: Settings | None = None
    image: str | None = None
    error: str | None = None

    @property
    def needs_full_plotly(self) -> bool:
        """Whether a trace is of a type that the built-in plotly.js does not have."""
        return self.figure is not None and bool(_types(self.figure) - BUILT_IN)


def load(rows: Sequence[Row], folder: Path = FOLDER) -> list[CustomPlot]:
    """Returns the custom plots of a folder, in the order of its files, and then those of installed packages.

    Args:
        rows: rows of all leaderboards.
        folder: folder with Python files; those that begin with "_" are left out.
    """
    return [
        plot if isinstance(plot, CustomPlot) else _drawn(name, plot, place, rows)
        for name, plot, place in (*_in_folder(folder), *_in_packages())
    ]


def full_plotly() -> str:
    """Returns the complete plotly.js of the installed package plotly.

    Raises:
        PlotError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise missing(error, "a plot of this type") from None
    return get_plotlyjs()


def _in_folder(folder: Path) -> Iterator[tuple[str, Plotter | CustomPlot, Path | None]]:
    """Yields (name, function or error, file)."""
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        try:
            module = imported(path.absolute(), str(path))
        except ImportFails as error:
            yield str(path), CustomPlot(str(path), path.stem, error=str(error)), path
            continue
        functions = [
            (name, value)
            for name, value in vars(module).items()
            if name.startswith(PREFIX) and inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        if not functions:
            remedy = f"add one, or rename the file to _{path.name}"
            none = f"{path}: has no function whose name begins with {PREFIX!r}; {remedy}"
            yield str(path), CustomPlot(str(path), path.stem, error=none), path
        for name, function in functions:
            yield f"{path}:{name}", function, path


def _in_packages() -> Iterator[tuple[str, Plotter | CustomPlot, Path | None]]:
    for entry in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            function = loaded(entry, PlotError, "a function of a DataFrame of results")
            if not callable(function):
                kind = type(function).__name__
                remedy = "expected a function of a DataFrame"
                raise PlotError(f"{described(entry)} is a {kind}", value=kind, remedy=remedy)
        except PlotError as error:
            yield entry.name, CustomPlot(entry.name, entry.name, error=str(error)), None
            continue
        file = inspect.getsourcefile(inspect.unwrap(function)) if inspect.isfunction(function) else None
        yield f"{entry.name} ({entry.value})", function, Path(file) if file else None


def _drawn(name: str, function: Plotter, file: Path | None, rows: Sequence[Row]) -> CustomPlot:
    """Calls a function. Any error becomes text, so that the page has its other parts."""
    title, _, caption = (inspect.getdoc(function) or "").partition("\n")
    plot = CustomPlot(name, title.strip() or getattr(function, "__name__", name), caption.strip())
    try:
        return replace(plot, **_shown(function(table_of(rows))))
    except Stopped:
        raise
    except UserError as error:
        return replace(plot, error=f"{name}: {error}")
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        line = f", line {line_in(file.absolute(), error)}" if file else ""
        return replace(plot, error=shareable(f"{name}{line}: {type(error).__name__}: {error}"))


def _shown(figure: object) -> dict[str, Any]:
    """Returns the field of CustomPlot for a figure."""
    if hasattr(figure, "to_plotly_json") and hasattr(figure, "to_json"):
        return {"figure": _of_plotly(json.loads(figure.to_json()))}
    if isinstance(figure, dict) and isinstance(figure.get("data"), list):
        return {"figure": _of_plotly(json.loads(json.dumps(figure, allow_nan=False)))}
    if hasattr(figure, "savefig"):
        return {"image": _of_matplotlib(figure)}
    remedy = "expected a figure of plotly (plotly.graph_objects.Figure) or of matplotlib"
    raise PlotError(f"returns {type(figure).__name__}", value=type(figure).__name__, remedy=remedy)


def _of_plotly(content: Settings) -> Settings:
    figure = {"data": content["data"], "layout": content.get("layout") or {}}
    size = len(json.dumps(figure))
    if size > MOST:
        raise PlotError(f"its figure has {size:,} bytes, the most is {MOST:,}", value=size, remedy="draw fewer points")
    if _types(figure) - BUILT_IN:
        full_plotly()
    return figure


def _of_matplotlib(figure: Any) -> str:
    import matplotlib
    from matplotlib import pyplot

    try:
        with matplotlib.rc_context({"svg.hashsalt": GROUP}):
            kind, content = "svg+xml", _saved(figure, format="svg", metadata={"Date": None})
        if len(content) > MOST_SVG:
            kind, content = "png", _saved(figure, format="png", dpi=150)
    finally:
        pyplot.close(figure)
    if len(content) > MOST:
        problem = f"its figure has {len(content):,} bytes, the most is {MOST:,}"
        raise PlotError(problem, value=len(content), remedy="make it smaller")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _saved(figure: Any, **options: object) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, bbox_inches="tight", **options)
    return file.getvalue()


def _types(figure: Settings) -> set[str]:
    return {trace.get("type") or "scatter" for trace in figure["data"]}
