"""Every recipe: it loads, fits its model and dataset, states origins of values, and its published number exists."""

import pytest

from gt_bench.config.origins import check_origins
from gt_bench.config.recipe import load_recipe
from gt_bench.data.registry import get_spec
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.papers.published import METRIC_NAMES, further, resolve
from gt_models.registry import model_info
from tests.recipes.shipped import PATHS, ROOT, cell, dataset, matches, recipe, results


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=cell)
def test_a_recipe_fits_its_model_and_its_dataset(path):
    content, spec = recipe(path), get_spec(dataset(path))
    check_model(content, path)
    check_fit(content, spec.level, spec.name, path)
    check_origins(content.given_values(), content.origin, path, complete=True)
    assert bool(content.batch.parts) <= (spec.split_kind == "node")
    if content.phases:
        assert hasattr(model_info(content.model.name).cls, "set_phase")


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in PATHS if recipe(p).published], ids=cell)
def test_the_published_number_exists(path):
    reference = recipe(path).published
    for place in reference.references(dataset(path)):
        place["metric"] = METRIC_NAMES.get(place["metric"], place["metric"])
        assert [e for e in results() if matches(e, place)], f"results.yaml prints nothing at {place}"


# (measured, published) under another name, and why they may be compared
OTHER_NAMES = {
    ("accuracy", "micro-f1"): "one label a node: the two are one number",
    ("ordered-pair-accuracy", "accuracy"): "of TpuGraphs's Tile part, a reduced cell",
}
# dataset of a cell: its name in papers, or the published part of it that comes first
OTHER_DATASETS = {
    "zinc-reconstructed": {"zinc"},
    "ogbn-arxiv-undirected": {"ogbn-arxiv"},
    "jets": {"jets-b"},
    "brec": {f"brec-{part}" for part in ("total", "basic", "regular", "extension", "cfi")},
    **{f"{name}-tokengt": {name} for name in ("computer", "cs", "photo", "physics")},
}


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in PATHS if recipe(p).published], ids=cell)
def test_a_number_is_compared_with_the_printed_one_of_the_same_dataset_metric_and_protocol(path):
    content, spec = recipe(path), get_spec(dataset(path))
    reference = content.published.model_dump()
    printed = resolve(reference, spec.name, spec.metric)
    others = further(reference, spec.name, spec.metric)
    assert printed is not None or all(other.measured for other in others)
    if printed is None:
        assert others
        return
    assert printed.dataset in OTHER_DATASETS.get(spec.name, {spec.name})
    assert printed.metric == METRIC_NAMES.get(spec.metric, spec.metric) or (spec.metric, printed.metric) in OTHER_NAMES
    assert printed.direction == ("min" if spec.metric in ("mae", "squared-error") else "max")
    if spec.metric not in ("mae", "squared-error", "pairs-distinguished"):
        assert 0 < printed.mean <= 1, "numbers leave the lookup as fractions"
    runs = printed.runs and printed.runs * printed.averages_over
    assert runs in (None, len(content.seeds)), f"{runs} runs are published"
    # the same number for every run: `also` is the same dataset, except for the parts of one test set
    assert all(other.dataset == printed.dataset or spec.name in ("jets", "brec") for other in others)


def test_no_two_rows_of_a_suite_are_one_run():
    """A second protocol of the same row must change numbers."""
    seen: dict[str, str] = {}
    for path in PATHS:
        key = f"{path.parent}: {recipe(path).decisive()} {recipe(path).search}"
        assert key not in seen, f"{cell(path)} decides the same numbers as {seen[key]}"
        seen[key] = cell(path)


def test_the_recipe_that_the_guide_shows_is_one(tmp_path):
    guide = (ROOT / "docs" / "add_a_model.md").read_text()
    path = tmp_path / "my-model.yaml"
    path.write_text(guide.split("```yaml\n")[1].split("```")[0])
    recipe = load_recipe(path)
    check_origins(recipe.given_values(), recipe.origin, path, complete=True)
