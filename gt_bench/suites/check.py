"""Problems of suites: recipes that do not fit models, datasets or published numbers, and invalid files of a paper."""

from collections import Counter
from pathlib import Path

from gt_bench.claims.evaluate import CLAIMS, claims_of, evaluate_claim
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.suite import load_suite
from gt_bench.data.registry import get_spec
from gt_bench.experiment.validate import check_fit, check_model, check_processes
from gt_bench.papers.published import further, published_of
from gt_bench.papers.results_file import FLAGS, RESULTS, PublishedError, read_flags
from gt_bench.search.space import check_space
from gt_bench.utils.errors import DatasetError, UserError
from gt_bench.utils.paths import MANIFEST, suite_folders


def suite_problems(name: str, grid: Grid) -> list[str]:
    """Returns problems of the files and cells of a suite, one line each.

    Raises:
        RecipeError: there is no such suite.
    """
    suite, folder = load_suite(name), suite_folders()[name]
    problems = []
    if suite.is_paper and not (folder / RESULTS).exists():
        problems.append(
            f"{folder}: {RESULTS} is missing, although {MANIFEST} names authors; add the published numbers "
            f"(suites/README.md), or remove `authors` if it is not a paper"
        )
    if (folder / RESULTS).exists():
        problems += _published_problems(name, folder)
    elif (folder / CLAIMS).exists():
        problems.append(f"{folder / CLAIMS}: {RESULTS}, which claims are tested with, is missing")
    problems += [problem for cell in grid.cells.values() if cell.suite == name for problem in _problems(cell)]
    return list(dict.fromkeys(problems))


def grid_problems(grid: Grid) -> list[str]:
    """Returns problems of all cells, one line each. A problem of a dataset is listed once."""
    return list(dict.fromkeys(problem for cell in grid.cells.values() for problem in _problems(cell)))


def _published_problems(paper: str, folder: Path) -> list[str]:
    """Returns problems of results.yaml, flags.yaml and claims.yaml of a paper."""
    try:
        numbers = published_of(paper)
        flags = read_flags(paper)
    except PublishedError as error:
        return [str(error)]
    places = Counter(number.place for number in numbers)
    problems = [f"{folder / RESULTS}: {', '.join(place[1:])}: {n} entries" for place, n in places.items() if n > 1]
    for flag in flags:
        keys = {key: value for key, value in flag.items() if key != "flag"}
        if not any(all(getattr(number, key, None) == value for key, value in keys.items()) for number in numbers):
            problems.append(f"{folder / FLAGS}: no published number has {keys}")
    try:
        for claim in claims_of(paper, folder):
            evaluate_claim(claim, path=str(folder / CLAIMS))
    except UserError as error:
        problems.append(str(error))
    return problems


def _problems(cell: Cell) -> list[str]:
    path = cell.recipe_path
    try:
        recipe = load_recipe(path)
        check_model(recipe, path)
        spec = get_spec(cell.dataset)
        check_fit(recipe, spec.level, cell.dataset, path)
        check_processes(recipe, spec.task, spec.split_kind, cell.dataset, path)
        if recipe.search:
            check_space(recipe, cell)
        further(recipe.published.model_dump() if recipe.published else None, cell.dataset, spec.metric)
    except PublishedError as error:
        return [str(error.within(path, "published"))]
    except DatasetError as error:
        return [str(error.within(path))]
    except (RecipeError, KeyError) as error:
        return [str(error.args[0])]
    if (recipe.search is None) == (cell.settings == "tuned"):
        return [f"grid.yaml: cell {cell.key}: expected `settings: tuned` if and only if {path} has a section `search:`"]
    return []
