"""The defaults of `gt-bench try` for every task and every model that fits it."""

import inspect
from pathlib import Path

import pytest

from gt_bench.api.evaluate import try_pair
from gt_bench.api.needed_encodings import with_encodings
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.tasks import TASKS
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.standin import miniature
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.plugins.default_recipes import recipe_of
from gt_bench.tasks.registry import create_task
from gt_models.kernels import use
from gt_models.registry import create_model, list_models, model_info
from tests.gt_bench.conftest import pack_web
from tests.refusals import refused

# task -> a dataset, and a model that is trained on its miniature
CASES = {
    "basis-approximation": ("basis-small", "tokengt-attention"),
    "brec": ("brec", "gin"),
    "configuration-ranking": ("tpugraphs-layout-tile", "gcn"),
    "graph-classification": ("csl", "gin"),
    "graph-multilabel": ("peptides-func", "gatedgcn"),
    "graph-regression": ("zinc", "mlp"),
    "hyperedge-prediction": ("gps", "hyper-sagnn"),
    "isomorphism": ("sr25", "gin"),
    "node-classification": ("texas", "gcn"),
    "set-to-graph": ("delaunay-50", "siam"),
}
# of no dataset of the benchmark: tests/gt_bench/api/test_edges.py trains those of edges
OF_ONES_OWN = {"node-regression", "edge-classification", "edge-regression", "link-prediction"}

OWN_DATA = {"ppgt-node2subgraph-released": "reads marks of subgraphs, which only the recipes of Node2Subgraph make"}


def arguments_of(model: str) -> set[str]:
    return set(inspect.signature(model_info(model).cls).parameters)


@pytest.fixture
def packed(ours, monkeypatch):
    """Replace datasets by their miniatures."""

    def made(name, *_):
        folder = Path("data/packed", name)
        if not folder.exists():
            miniature(get_spec(name), folder)
        return PackedDataset.open(folder)

    monkeypatch.setattr("gt_bench.api.evaluate.prepared_dataset", made)
    return made


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"optimizer.momentum": 0.9}, "optimizer.momentum"),
        ({"optimizer.name": "sgd", "optimizer.eps": 1e-3}, "optimizer.eps"),
        ({"schedule": {"patience": 3}}, "schedule.patience"),
        ({"schedule.name": "step", "schedule.every": 3, "schedule.total": 9}, "schedule.total"),
    ],
)
def test_a_setting_without_an_effect_is_refused(tmp_path, given, key):
    with refused(OptionError, place="--set", value=key):
        recipe_of(model_info("gcn"), pack_web(tmp_path), given, None, None)


def test_a_searched_setting_must_be_able_to_have_an_effect(tmp_path):
    header, momentum = pack_web(tmp_path), {"optimizer.momentum": {"choices": [0.0, 0.9]}}
    with refused(OptionError, place="--space", value="optimizer.momentum"):
        recipe_of(model_info("gcn"), header, {}, None, 2, momentum)
    for given, space in (
        ({"optimizer.name": "sgd"}, momentum),
        ({}, momentum | {"optimizer.name": {"choices": ["sgd", "adam"]}}),
    ):
        recipe = recipe_of(model_info("gcn"), header, given, None, 2, space)
        assert recipe.with_values({"optimizer.momentum": 0.9}).optimizer.momentum == 0.9


def test_every_task_has_a_case():
    assert CASES.keys() | OF_ONES_OWN == TASKS.keys()
    assert not OF_ONES_OWN & {spec.task for spec in catalog().values()}
    assert all(get_spec(dataset).task == task for task, (dataset, _) in CASES.items())


@pytest.mark.slow
@pytest.mark.parametrize("task", CASES)
def test_a_task_is_tried(packed, task):
    dataset, model = CASES[task]
    has_width = "hidden_dim" in arguments_of(model)
    found = try_pair(model, dataset, {"epochs": 2} | ({"model.hidden_dim": 30} if has_width else {}), [0])
    assert found.row["status"] == "ok"
    assert found.mean is not None


@pytest.mark.slow
@pytest.mark.parametrize("task", CASES)
def test_every_model_that_fits_a_task_has_defaults(packed, task):
    data = packed(CASES[task][0])
    header, tried, refused = data.header, [], {}
    dims = {"out_dim": header.out_dim, "level": header.level, "edge_dim": header.edge_dim}
    dims["in_dim"] = create_task(header.task, header.metric, None, header.also).in_dim(header)
    for name in list_models():
        if header.level not in model_info(name).levels or name in OWN_DATA:
            continue
        recipe = recipe_of(model_info(name), header, {}, None, 3)
        check_fit(recipe, header.level, header.name, name)
        taken = {key: value for key, value in dims.items() if key in arguments_of(name)}
        try:
            with use("reference"):  # compiling the fast paths of all widths takes half a minute
                recipe = with_encodings(recipe, model_info(name), data)
            create_model(name, **taken, **check_model(recipe, name))
        except ValueError as reason:  # Incompatible is a ValueError
            refused[name] = str(reason)
        else:
            tried.append(name)
    assert CASES[task][1] in tried
    assert all("carry no encodings" in reason or "continuous" in reason for reason in refused.values()), refused
    assert (
        {"ppgt", "grit"} <= refused.keys()
        if task == "configuration-ranking"
        else refused.keys() <= {"gin-bare", "classic-gnn"}
    )


def test_brec_is_by_the_reference_protocol(packed):
    found = try_pair("mlp", "brec", {"epochs": 1}, [0])
    recipe = load_recipe(found.recipe)
    assert (recipe.brec.threshold, recipe.batch.graphs, recipe.select, recipe.optimizer.name) == (
        72.34,
        16,
        "last",
        "adam",
    )
