"""The recipes that the repository ships, and the numbers that the papers print."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gt_bench.config.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "recipes").glob("*/*/*.yaml"))
PLACE = ("paper", "table", "method", "dataset", "metric", "split")


@cache
def recipe(path: Path) -> Recipe:
    return load_recipe(path)


def cell(path: Path) -> str:
    """suite/dataset/row"""
    return path.relative_to(ROOT / "recipes").with_suffix("").as_posix()


def dataset(path: Path) -> str:
    return path.parent.name


@cache
def published(name: str) -> dict[str, Any]:
    return yaml.load((ROOT / "published" / name).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def results() -> list[dict[str, Any]]:
    """Every printed number, of the five papers and of others."""
    return [*published("results.yaml")["results"], *published("further.yaml")["results"]]


def matches(entry: dict[str, Any], place: dict[str, Any]) -> bool:
    """Whether a printed number stands at `place`; a key that is not given there, or None, may be anything."""
    return all(place.get(key) in (None, entry[key]) for key in PLACE)
