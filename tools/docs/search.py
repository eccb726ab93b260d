"""Generates the tables of docs/search.md from the schema of recipes.

python -m tools.docs.search        rewrites docs/search.md between its marks
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from gt_bench.config.search_section import PRUNERS, SAMPLERS, SearchSection
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Settings
from tools.docs.datasets import fill, table

PAGE = Path(__file__).parents[2] / "docs" / "search.md"


def keys(schema: type[BaseModel]) -> str:
    """Returns a table of the keys of a section: type, default and description."""
    shapes, rows = schema.model_json_schema()["properties"], []
    # required keys first
    for name, field in sorted(schema.model_fields.items(), key=lambda one: not one[1].is_required()):
        default = (
            "required"
            if field.is_required()
            else f"`{'null' if field.default is None else str(field.default).lower()}`"
        )
        rows.append([f"`{name}`", _type_of(shapes[name]), default, field.description])
    return table(["key", "type", "default", "description"], rows)


def methods(kinds: Mapping[str, type[BaseModel]], what: str) -> str:
    """Returns a table of samplers or pruners: name, and options with their defaults."""
    rows = []
    for name, options in kinds.items():
        shown = [
            f"`{key}`" + (" (required)" if field.is_required() else f" ({_default(key, field.default)})")
            for key, field in options.model_fields.items()
        ]
        rows.append([f"`{name}`", ", ".join(shown) or "none"])
    return table([what, "options (default)"], rows)


def _default(key: str, value: object) -> str:
    if value is None:
        return {"min_resource": "`warmup_epochs`", "lower": "none", "upper": "none"}.get(key, "Optuna's default")
    return str(value).lower()


def page(text: str) -> str:
    """Returns the text of docs/search.md with new tables."""
    tables = {
        "search": keys(SearchSection),
        "samplers": methods(SAMPLERS, "sampler"),
        "pruners": methods(PRUNERS, "pruner"),
    }
    return fill(text, tables)


def _type_of(shape: Settings) -> str:
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    if "anyOf" in shape:
        return " or ".join(_type_of(one) for one in shape["anyOf"])
    if shape.get("type") == "array":
        return "a list"
    words = {
        "integer": "an integer",
        "number": "a number",
        "boolean": "true or false",
        "object": "a mapping",
        "null": "null",
    }
    return words.get(shape.get("type", ""), "text") + (" above 0" if shape.get("exclusiveMinimum") == 0 else "")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    write_bytes(PAGE, page(PAGE.read_text(encoding="utf-8")).encode())
