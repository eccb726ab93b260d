"""docs/models.md and its picture: every model, from the registry, what is proved of it, the grid, and docs/models.json (`benchmarks/models.py`).

python -m tools.docs.models
"""

import json
import sys
from pathlib import Path
from typing import TypedDict

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.utils.format import markdown_line
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import INSTALLED, SUITES, recipe_file
from gt_models import list_models, model_info
from gt_models.api import ModelCard

DOCS = INSTALLED / "docs"
GROUPS = {
    "gt_models": "The five papers",
    "gt_models.released": "As their authors released them",
    "gt_models.baselines": "What they are compared with",
}
HEAD = ("model", "predicts per", "time per layer", "tells apart", "encodings", "parameters", "ms", "MiB", "in tables")


class Step(TypedDict):
    """A training step of one model: processor time of one thread in ms, memory in MiB."""

    ms: float
    mib: float
    parameters: int


class Measured(TypedDict):
    """docs/models.json. `growth`: by model, (nodes, ms, MiB) for graphs of more and more nodes."""

    setting: dict[str, str | int]
    models: dict[str, Step]
    growth: dict[str, list[list[float]]]


def page(measured: Measured) -> str:
    """The text of docs/models.md. `measured`: the content of docs/models.json."""
    setting, tables = measured["setting"], _tables()
    parts = [
        "# Models",
        "",
        "Made by `python -m tools.docs.models` from the registry, `gt_models/metadata.py`, the recipes and `docs/models.json`, which `python benchmarks/models.py --write docs/models.json`",
        "measures. `gt_models.model_info(name)` shows one of them with its arguments.",
        "",
        "![Time of a training step against the nodes of a graph](models.svg)",
        "",
        "Time per layer: n nodes, m edges, width d. Tells apart: graphs, by the model's paper. ms and MiB: a training step on "
        f"{setting['graphs']} random graphs of {setting['nodes']} nodes and mean degree {setting['degree']}, processor time of one thread ({setting['processor']}, torch "
        f"{setting['torch']}) and memory above what imports take, each model of the size that `gt-bench try` gives it (`gt_bench/plugins/defaults.yaml`). In tables: where a "
        "recipe of ours is held against a printed number.",
        "",
    ]
    cards = {name: model_info(name) for name in list_models()}
    for package, title in GROUPS.items():
        parts += [f"## {title}", "", markdown_line(HEAD), markdown_line(["---"] * len(HEAD))]
        parts += [markdown_line(_cells(card, measured, tables)) for card in cards.values() if _package(card) == package]
        parts.append("")
    parts += ["## Papers", "", *(f"- {name}: {card.paper}" for name, card in cards.items()), ""]
    return "\n".join(parts)


def draw(path: Path, measured: Measured) -> None:
    """Time of a step against nodes, both logarithmic, a line per model."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for name, points in measured["growth"].items():
        nodes, times = [p[0] for p in points], [p[1] for p in points]
        (line,) = axes.plot(nodes, times, marker="o", markersize=3)
        axes.annotate(f"  {name}", (nodes[-1], times[-1]), color=line.get_color(), fontsize="small", va="center")
    axes.set(
        xscale="log", yscale="log", xlabel="nodes of one graph, mean degree 4", ylabel="training step, ms of one thread"
    )
    axes.set_xlim(right=3 * max(p[0] for points in measured["growth"].values() for p in points))
    with rc_context({"svg.hashsalt": "models"}):
        FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


def read_measured() -> Measured:
    """The content of docs/models.json."""
    return json.loads((DOCS / "models.json").read_text(encoding="utf-8"))


def _cells(card: ModelCard, measured: Measured, tables: dict[str, list[str]]) -> list[str]:
    one = measured["models"].get(card.name)
    numbers = [f"{one['parameters']:,}", f"{one['ms']:.3g}", f"{one['mib']:.0f}"] if one else ["–", "–", "–"]
    where = "; ".join(tables.get(card.name, [])) or "–"
    return [
        f"`{card.name}`",
        ", ".join(card.levels),
        card.cost,
        card.expressivity,
        ", ".join(card.encodings) or "–",
        *numbers,
        where,
    ]


def _tables() -> dict[str, list[str]]:
    """Model -> the printed tables that its recipes are held against."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for cell in load_grid(INSTALLED / "params.yaml").cells.values():
        recipe = load_recipe(recipe_file(cell.cell, INSTALLED / SUITES))
        for place in recipe.published.references(cell.dataset) if recipe.published else ():
            found.setdefault(recipe.model.name, {})[place["paper"] or "", place["table"] or ""] = None
    texts: dict[str, list[str]] = {}
    for model, places in found.items():
        papers: dict[str, list[str]] = {}
        for paper, table in sorted(places, key=lambda place: (place[0], _number(place[1]), place[1])):
            papers.setdefault(paper, []).append(table.removeprefix("Table ").removeprefix("table:"))
        texts[model] = [f"{paper} {', '.join(numbers)}" for paper, numbers in papers.items()]
    return texts


def _number(table: str) -> int:
    return int("".join(filter(str.isdigit, table)) or 0)


def _package(card: ModelCard) -> str:
    return next(
        package for package in sorted(GROUPS, key=len, reverse=True) if card.cls.__module__.startswith(f"{package}.")
    )


def main() -> int:
    """Writes docs/models.md and docs/models.svg."""
    measured = read_measured()
    write_bytes(DOCS / "models.md", page(measured).encode())
    draw(DOCS / "models.svg", measured)
    print(f"written: {DOCS / 'models.md'}, {DOCS / 'models.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
