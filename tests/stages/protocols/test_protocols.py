"""Every protocol of a task's own: a section of recipes, which says how a run is counted, cut and timed and what a miniature holds."""

import numpy as np
import pytest

from stages.protocols import PROTOCOLS, BrecSection, Protocol
from stages.recipe import Recipe
from stages.tasks import task_module

RECIPE = {"model": {"name": "gin"}, "batch": {"graphs": 16}, "optimizer": {"lr": 0.01}, "epochs": 2, "seeds": [0]}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_belongs_to_a_task_and_a_recipe_finds_it_by_what_it_is(name):
    assert task_module(name)
    assert Recipe.model_fields[name].annotation == PROTOCOLS[name] | None
    recipe = Recipe.model_validate(RECIPE | {name: {}})
    assert isinstance(recipe.protocol, PROTOCOLS[name])
    assert recipe.reports == recipe.protocol.parts
    cut = recipe.with_protocol(recipe.protocol.only(3))
    assert cut.protocol.parts == cut.reports == 3
    assert recipe.protocol.of_miniature().parts < recipe.protocol.parts
    assert Recipe.model_validate(RECIPE).protocol is None


def test_pairs_of_brec_are_chosen_evenly_and_none_ends_early_when_it_is_timed():
    section = BrecSection(pairs=[(0, 10), (100, 110)])
    assert section.only(4).numbers() == [2, 7, 102, 107]
    assert section.to_the_end().stop_below == 0.0
    with pytest.raises(ValueError, match="share none"):
        BrecSection(pairs=[(0, 10), (9, 12)])


def test_a_miniature_of_brec_has_pairs_and_their_controls():
    sizes = BrecSection.miniature_sizes(np.random.default_rng(0), 5, 9)
    arrays = BrecSection.miniature_arrays(len(sizes))
    assert {len(array) for array in arrays.values()} == {len(sizes)}
    for pair in BrecSection().of_miniature().numbers():
        for control in (0, 1):
            graphs = np.flatnonzero((arrays["pair"] == pair) & (arrays["control"] == control))
            assert len(set(sizes[graphs])) == 1, "relabellings of one graph have one size"
            assert arrays["side"][graphs].tolist() == [0, 1] * 32


def test_a_section_that_leaves_a_question_open_is_no_protocol():
    class Half(Protocol):
        KEY, UNIT = "half", "halves"

        @property
        def parts(self) -> int:
            return 2

    with pytest.raises(TypeError, match="abstract"):
        Half()
