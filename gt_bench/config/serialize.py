"""A recipe as one complete YAML file, with its bases resolved."""

import yaml

from gt_bench.config.origins import ROW, origin_of
from gt_bench.config.recipe import Recipe


def recipe_text(recipe: Recipe) -> str:
    """Returns the recipe as YAML, with the origin of each value in a comment."""
    content = recipe.model_dump(mode="json", exclude_unset=True, exclude={"origin"})
    return "".join(f"{line}\n" for key, value in content.items() for line in _lines(key, value, (key,), recipe.origin))


def _lines(key: str, value: object, path: tuple[str, ...], origin: dict[str, str]) -> list[str]:
    indent = "  " * (len(path) - 1)
    if isinstance(value, dict) and value and path[0] not in ROW:
        return [f"{indent}{key}:", *(line for k, v in value.items() for line in _lines(k, v, (*path, k), origin))]
    source = origin_of(".".join(path), origin)
    text = (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6).removesuffix("...\n").rstrip("\n")
    )
    return [f"{indent}{key}: {text}" + (f"  # {source}" if source else "")]
