"""`gt-bench match MODEL DATASET --parameters 500k`: the width at which a model has a number of parameters."""

from collections.abc import Sequence

from gt_bench.config.option_text import OptionError, values_in
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError, validated
from gt_bench.experiment.match_size import FAR, count_in, matched, usual_width
from gt_bench.plugins.models import find
from gt_bench.utils.format import print_json, print_text
from gt_bench.utils.json_types import Settings
from gt_bench.utils.terminal import print_wrapped


def show(model: str, dataset: str, parameters: str, by: str | None, given: Sequence[str], as_json: bool) -> None:
    """Prints the width, the number of parameters, and the lines for a recipe.

    Args:
        model: name of a model, or path/to/file.py:MyModel.
        dataset: name of a dataset.
        parameters: the budget, such as 500k.
        by: the argument that is chosen. None for the model's width.
        given: `model.KEY=VALUE` of the recipe.
        as_json: print JSON instead.

    Raises:
        RecipeError: the budget cannot be read, or the model cannot be matched.
    """
    where = f"gt-bench match {model} {dataset}"
    try:
        budget = count_in(parameters)
    except ValueError as error:
        raise OptionError(str(error), place="--parameters", value=parameters) from None
    arguments: Settings = {}
    for key, value in values_in("--set", given, "model.dropout=0.1").items():
        section, _, name = key.partition(".")
        if section != "model" or not name:
            problem, remedy = "only arguments of the model change its size", "expected model.NAME=VALUE"
            raise OptionError(problem, place="--set", value=key, remedy=remedy)
        arguments[name] = value
    try:
        name = find(model).name
    except KeyError as error:
        raise RecipeError(error.args[0], file=where, value=model) from None
    by = by or usual_width(name)
    if by in arguments:
        problem, remedy = "is the argument that is chosen", "leave it out, or choose another one by --by"
        raise OptionError(problem, place="--set", value=f"model.{by}", remedy=remedy)
    content = {"model": {"name": name, **arguments}, "optimizer": {"lr": 0.001}, "epochs": 1, "seeds": [0]}
    match = matched(validated(Recipe, content, where), dataset, by, budget, where)
    if as_json:
        print_json({"model": name, "dataset": dataset, "budget": budget, **vars(match)})
        return
    off = match.parameters / budget - 1
    steps = f", a multiple of {match.step} (its heads)" if match.step > 1 else ""
    print_wrapped(f"{match.by}: {match.value}{steps}: {match.parameters:,} parameters, {off:+.1%} of {budget:,}")
    if abs(off) > FAR:
        print_wrapped(f"no value of {match.by} is nearer; another --by or --set changes the size in finer steps")
    print_text("in a recipe:")
    print_text(f"  model: {{name: {name}, {match.by}: {match.value}}}")
    print_text(f'  origin: {{model.{match.by}: "chosen: {match.parameters:,} parameters, for a budget of {budget:,}"}}')
