"""Recipe sections of protocols: how a run is counted, limited and timed, and the contents of a miniature."""

import io
import tokenize

import numpy as np
import pytest

from gt_bench.config.protocols import PROTOCOLS, BrecSection, Protocol
from gt_bench.config.recipe import Recipe
from gt_bench.config.tasks import task_module
from tests.conftest import ROOT

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
    with pytest.raises(ValueError, match="expected disjoint ranges"):
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

    with pytest.raises(TypeError):
        Half()


# modules that may name a protocol: its implementation, registries, and code for published counts of its parts
NAMES_IT = {
    "brec": {
        "claims/checks/brec.py", "claims/checks/homophily.py", "claims/checks/registry.py",
        "config/protocols/__init__.py", "config/protocols/brec.py", "config/recipe.py", "config/tasks.py",
        "data/brec_pairs.py", "data/families/expressivity.py", "papers/pair_counts.py", "tasks/brec.py",
        "training/static_batches.py",
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOLS)
def test_only_the_listed_modules_name_a_protocol(name):
    def says(path) -> bool:
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        code = (
            t.string.lower() for t in tokens if t.type != tokenize.COMMENT and not t.string.startswith(('"""', 'f"""'))
        )
        return any(name in text for text in code)

    root = ROOT / "gt_bench"
    assert {str(path.relative_to(root)) for path in root.rglob("*.py") if says(path)} == NAMES_IT[name]
