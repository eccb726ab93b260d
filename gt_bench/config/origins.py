"""Section `origin:` of a recipe: the source of each of its values."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gt_bench.config.schema import RecipeError, nearest

# first words of an origin: published in the paper, from its authors' scripts, not published, result of a search,
# different from the published value, chosen here
ORIGINS = ("printed", "authors", "unstated", "tuned", "deviates", "chosen")
# keys that describe one row of a table: bases do not pass them on, and `origin: {all: ...}` does not apply to them
ROW = ("published", "parameters", "reduced", "search", "start", "keep_weights", "predictions")


def ancestors(key: str) -> list[str]:
    """Returns `a`, `a.b` and `a.b.c` for the dotted key `a.b.c`."""
    parts = key.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def origin_of(key: str, origin: Mapping[str, str]) -> str | None:
    """Returns the origin of the value of a dotted key.

    Args:
        key: the dotted key.
        origin: section `origin` of the recipe.

    Returns:
        The origin of the key, else of the nearest section that contains it, else of `all` (not for keys in `ROW`), else
            None.
    """
    names = [*reversed(ancestors(key)), *(["all"] if key.split(".")[0] not in ROW else [])]
    return next((origin[name] for name in names if name in origin), None)


def check_origins(
    values: Sequence[str], origin: Mapping[str, str], path: str | Path = "recipe", complete: bool = False
) -> None:
    """Validates the origins of the values of a recipe.

    An origin of `model` applies to every `model.x` without one, and `all` to every value without one.

    Args:
        values: dotted keys of the values that the recipe gives.
        origin: section `origin` of the recipe.
        path: its file, for messages.
        complete: whether every value needs an origin.

    Raises:
        RecipeError: an origin has an unknown kind, applies to no value, or applies only to values with another origin.
    """
    covers = {key: {v for v in values if key == "all" or v == key or v.startswith(f"{key}.")} for key in origin}
    for key, text in origin.items():
        place = f"origin.{key:.200}"
        if not covers[key]:
            known = sorted({v for value in values for v in ancestors(value)})
            raise RecipeError(f"the recipe has no value {key!r:.200}{nearest(key, known)}", file=path, place=place)
        if not text.startswith(ORIGINS):
            problem = f"expected one of {', '.join(ORIGINS)} as first word (given: {text!r:.200})"
            raise RecipeError(problem, file=path, place=place, value=text)
        # "tuned" may be added to the origin of the starting value
        narrower = [other for other in covers if covers[other] < covers[key] and not origin[other].startswith("tuned")]
        if narrower and covers[key] == set().union(*(covers[other] for other in narrower)):
            problem = f"second origin of {', '.join(sorted(narrower))}"
            raise RecipeError(problem, file=path, place=place, remedy="keep one of them")
    if complete:
        without = sorted(set(values) - set().union(*covers.values()))
        if without:
            raise RecipeError(f"no origin for {', '.join(without)}", file=path, place="origin", value=without)
