"""Every published number of a paper's own method has a recipe, or a written reason why not."""

from gt_bench.papers.published import METRIC_NAMES
from tests.recipes.shipped import PATHS, dataset, matches, published, recipe, results


def places():
    for path in PATHS:
        reference = recipe(path).published
        for place in reference.references(dataset(path)) if reference else ():
            yield place | {"metric": METRIC_NAMES.get(place["metric"], place["metric"])}


def own():
    return [entry for entry in results() if entry["own"]]


def test_every_own_number_has_a_recipe_or_a_reason():
    known = [*places(), *published("without_recipe.yaml")]
    without = [e for e in own() if not any(matches(e, place) for place in known)]
    listing = "\n".join(
        f"{e['paper']}, {e['table']}: {e['method']} on {e['dataset']} ({e['metric']}, {e['split']})" for e in without
    )
    assert not without, (
        f"{len(without)} published numbers have neither a recipe nor a reason in their without_recipe.yaml:\n{listing}"
    )


def test_a_reason_is_about_numbers_that_have_no_recipe():
    recipes = list(places())
    for reason in published("without_recipe.yaml"):
        about = [e for e in own() if matches(e, reason)]
        assert about, f"{reason} is about no published number"
        assert reason["reason"].strip()
        covered = [e for e in about if any(matches(e, place) for place in recipes)]
        assert not covered, f"{reason} gives a reason for numbers that have a recipe: {covered[0]}"


def test_a_flag_is_about_a_published_number():
    for flag in published("flags.yaml"):
        assert [e for e in results() if matches(e, flag)], f"{flag} is about no published number"
        assert flag["flag"].strip()
