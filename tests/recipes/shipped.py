"""The recipes of the repository and the published numbers."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gt_bench.config.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "suites").glob("*/recipes/*/*.yaml"))
PLACE = ("paper", "table", "method", "dataset", "metric", "split")


@cache
def recipe(path: Path) -> Recipe:
    return load_recipe(path)


def cell(path: Path) -> str:
    """suite/dataset/row"""
    return "/".join((path.parts[-4], path.parts[-2], path.stem))


def dataset(path: Path) -> str:
    return path.parent.name


@cache
def published(name: str) -> list[dict[str, Any]]:
    """The entries of this file in all suites, each with the name of its paper."""
    found = []
    for path in sorted((ROOT / "suites").glob(f"*/{name}")):
        content = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        entries = content["results"] if name == "results.yaml" else content
        found += [{"paper": path.parent.name} | entry for entry in entries]
    return found


def results() -> list[dict[str, Any]]:
    """Every published number."""
    return published("results.yaml")


def matches(entry: dict[str, Any], place: dict[str, Any]) -> bool:
    """Whether a number is published at `place`; a missing key, or None, matches anything."""
    return all(place.get(key) in (None, entry[key]) for key in PLACE)
