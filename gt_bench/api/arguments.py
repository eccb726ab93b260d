"""Arguments of `gt_bench.evaluate`, which a program may give in any type."""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictBool

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import Positive, RecipeError, validated
from gt_bench.config.search_section import SearchMethod
from gt_bench.data.custom.description import Description, Text
from gt_bench.utils.errors import UserError
from gt_bench.utils.json_types import Settings


def _seeds(value: Any) -> list[int]:
    is_number = not isinstance(value, bool | list | tuple | range) and getattr(value, "ndim", 0) == 0
    try:
        seeds = [operator.index(seed) for seed in (range(operator.index(value)) if is_number else value)]
    except TypeError:
        seeds = []
    if not seeds:
        raise ValueError("expected a number of seeds of at least 1, or a list of them: 3 or [0, 1, 2]")
    return seeds


def _names(value: Any) -> Any:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _spaces(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for key, one in value.items():
        if isinstance(one, tuple):
            bounds = f', or {{"low": {one[0]!r}, "high": {one[1]!r}}} for a range' if len(one) == 2 else ""
            raise ValueError(f"{key}: a tuple is ambiguous; write {list(one)} for choices{bounds}")
    return {key: {"choices": one} if isinstance(one, list) else one for key, one in value.items()}


class Arguments(Description):
    """Arguments of `gt_bench.evaluate`.

    Attributes:
        seeds: the seeds.
        set: dotted keys of a recipe.
        search: number of trials.
        space: dotted keys with their spaces, as in `search.space` of a recipe.
        method: keys of `search:` of a recipe.
        ensemble: whether an ensemble is made.
        against: names of further models.
        name: name of a dataset that is not given by its name or path.
        track: whether runs are logged to MLflow.
    """

    seeds: Annotated[list[int], BeforeValidator(_seeds)]
    set: dict[str, Any]
    search: Positive | None
    space: Annotated[Settings, BeforeValidator(_spaces)]
    method: SearchMethod
    ensemble: StrictBool
    against: Annotated[list[Text], BeforeValidator(_names)]
    name: Text
    track: StrictBool

    @property
    def data(self) -> Description:
        """What is declared about user-supplied data."""
        return Description(**self.stated())


def checked(arguments: Settings) -> Arguments:
    """Checks the arguments of `evaluate`. None means an empty mapping or list.

    Raises:
        RecipeError: an argument has a wrong type; the message names it.
        DatasetError: the split is invalid.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    for key, value in given.items():
        if key in Recipe.model_fields and key not in Arguments.model_fields:
            raise RecipeError(
                "is a key of a recipe, not an argument of evaluate",
                place=key,
                value=value,
                remedy=f"use set={{{key!r}: {value!r}}}",
            )
    empty: Settings = {"set": {}, "search": None, "space": {}, "method": {}, "against": []}
    return validated(Arguments, empty | given, "evaluate")


@contextmanager
def noting_options() -> Iterator[None]:
    """Add to an error of the block that options of `gt-bench try`, which its remedy names, are arguments here."""
    try:
        yield
    except UserError as error:
        if "--" in str(error):
            error.add_note('in Python: `--drop year` is drop="year", `--set epochs=2` is set={"epochs": 2}')
        raise
