"""Encodings that recipes request on a dataset."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice
from gt_bench.config.tasks import LINK
from gt_bench.utils.json_types import Settings

if TYPE_CHECKING:
    from gt_bench.data.packed import PackedDataset


def encode_for(recipe: Recipe, packed: "PackedDataset", data: Path = Path("data")) -> None:
    """Computes the encodings that runs of one recipe need and that are missing.

    Args:
        recipe: the recipe.
        packed: its dataset.
        data: folder with packed/ and encodings/.

    Raises:
        RecipeError: an argument of an encoding cannot be used.
        DatasetError: an encoding cannot be computed.
    """
    from gt_bench.encodings.compute import encode

    if packed.header.task == LINK:  # they are computed on the training graph of each run
        return
    for name, arguments in requests(recipe):
        encode(packed, data / "encodings" / packed.header.name, name, arguments)


def requests(recipe: Recipe) -> list[tuple[str, Settings]]:
    """Returns the encodings that runs of a recipe may need.

    Returns:
        (encoding, arguments). An encoding occurs several times if its arguments are searched. Empty for a recipe with
        `subgraphs`, whose encodings are computed for each batch.

    Raises:
        RecipeError: arguments of an encoding are searched in a range.
    """
    wanted: list[tuple[str, Settings]] = []
    if recipe.subgraphs:
        return wanted
    for name, arguments in recipe.encodings.items():
        prefix = f"encodings.{name}."
        space = (
            {k.removeprefix(prefix): c for k, c in recipe.search.space.items() if k.startswith(prefix)}
            if recipe.search
            else {}
        )
        choices = []
        for key, choice in space.items():
            if not isinstance(choice, Choice):
                problem, place = "encodings are computed before the search", f"search.space.{prefix}{key}"
                raise RecipeError(problem, place=place, remedy="use `choices` instead of a range")
            choices.append(choice.choices)
        wanted += [(name, arguments | dict(zip(space, values))) for values in itertools.product(*choices)]
    return wanted
