"""User-supplied models: a torch module in a file, added to the grid by one recipe; errors for each mistake."""

import importlib
import random
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from gt_bench import evaluate
from gt_bench.api.evaluate import try_pair
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import catalog
from gt_bench.pipeline.grid import write_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.plugins.model_errors import OwnModelError
from gt_bench.plugins.models import files_digest, find
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from gt_models import registry
from gt_models.batch import GraphBatch
from tests.conftest import ROOT
from tests.gt_bench.custom_data import mine
from tests.gt_bench.user_models import forgotten, install, write  # noqa: F401 - a fixture
from tests.refusals import refused

pytestmark = pytest.mark.slow

PLAIN = """
    import torch
    from torch_geometric.nn import global_mean_pool

    class Plain(torch.nn.Module):
        def __init__(self, in_channels, num_classes, level, width=8, act: str = "relu"):
            super().__init__()
            self.level = level
            self.encode = torch.nn.Linear(in_channels, width)
            self.head = torch.nn.Linear(width, num_classes)

        def forward(self, data):
            h = getattr(torch, self.act if hasattr(self, "act") else "relu")(self.encode(data.x))
            return self.head(h if self.level == "node" else global_mean_pool(h, data.batch))
"""
REGISTERED = """
    import torch
    from gt_models import GraphBatch, register_model

    @register_model("ours", levels=("node",), cost="n d")
    class Ours(torch.nn.Module):
        def __init__(self, in_dim, out_dim: int, level: str = "node"):
            super().__init__()
            self.head = torch.nn.Linear(in_dim, out_dim)

        def forward(self, batch):
            return self.head(GraphBatch.of(batch).x)
"""
FAST = {"epochs": 2}


def run(model: str, dataset: str, change=None):
    return try_pair(model, dataset, FAST | (change or {}), [0])


def line_of(file: str, text: str) -> int:
    return next(i for i, line in enumerate(Path(file).read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize("dataset", ["web", "many"])
def test_a_plain_module_on_nodes_and_graphs(ours, dataset, forked, monkeypatch):
    write("lab/plain.py", PLAIN)
    many = mine(ours / "raw/many", "graph-regression", "many", categories=["nodes.atom"])
    monkeypatch.setitem(catalog(), "many", many)
    found = run("lab/plain.py:Plain", dataset, {"model.width": 5})
    assert found.row["status"] == "ok"
    assert found.row["model"] == "plain-epochs-2-width-5"
    recipe = load_recipe(found.recipe)
    assert recipe.model.arguments["width"] == 5
    # four continuous features; an atom of four kinds is four columns
    assert found.row["parameters"] == 4 * 5 + 5 + 5 * (3 if dataset == "web" else 1) + (3 if dataset == "web" else 1)


def test_parts_of_the_data_by_name(ours, forked):
    text = PLAIN.replace("self, data", "self, x, edge_index, batch=None")
    write("a.py", text.replace("data.batch", "batch").replace("data.x", "x"))
    assert run("a.py", "many").row["status"] == "ok"


def test_a_value_of_another_kind_is_one_line(ours, forked):
    write("a.py", PLAIN)
    for value in ("wide", True, [8]):
        with pytest.raises(UserError) as error:
            try_pair("a.py", "web", {"model.width": value}, [0])
        assert str(error.value) == f"gt-bench try a.py web: model.width: expected a number (given: {value!r})"
    assert run("a.py", "web", {"model.width": 9}).row["status"] == "ok"


def test_two_that_have_one_short_name_keep_their_results(ours, forked):
    for folder in ("a", "b"):
        write(f"{folder}/net.py", """
            import torch

            class GCN(torch.nn.Module):
                def __init__(self, in_dim, out_dim, offset=0.0):
                    super().__init__()
                    self.head, self.offset = torch.nn.Linear(in_dim, out_dim), offset

                def forward(self, data):
                    return self.head(data.x) + self.offset
        """)  # fmt: skip
    for model, given in (
        ("gcn", {}), ("a/net.py:GCN", {}), ("b/net.py:GCN", {}), ("a/net.py:GCN", {"model.offset": 1.0}),
        ("a/net.py:GCN", {"model.offset": -1.0}),
    ):  # fmt: skip
        found = try_pair(model, "web", {"epochs": 1, **given}, [0])
    assert len(found.rows) == 5
    assert len({row["model"] for row in found.rows}) == 5
    again = try_pair("a/net.py:GCN", "web", {"epochs": 1, "model.offset": -1.0}, [0, 1])
    assert len(again.rows) == 5
    assert again.row["model"] == found.row["model"]


def test_it_joins_the_grid_by_one_recipe(ours, forked):
    write("lab/plain.py", PLAIN)
    recipe = {"model": {"name": "lab/plain.py:Plain"}, "optimizer": {"lr": 0.01}, "epochs": 2, "seeds": [0]}
    write("suites/mine/recipes/web/plain.yaml", yaml.safe_dump(recipe))
    write_grid()
    prepare("web")
    grid = load_grid()
    assert train_cell(grid.find("mine/web/plain"), grid, bar=False).status == "ok"


def test_a_class_that_no_new_process_can_import_is_computed_each_time(ours, capsys):
    scope = {"__name__": "__main__"}
    exec(textwrap.dedent(PLAIN), scope)
    exec(textwrap.dedent(REGISTERED), scope)
    models = [scope["Plain"], scope["Plain"], scope["Ours"], "ours"]
    rows = [evaluate(model, "web", 1, set=FAST, track=False).row for model in models]
    assert [row["mean"] for row in rows[::2]] == [row["mean"] for row in rows[1::2]]
    assert len({digest for row in rows for digest in row["digests"]}) == 4
    assert capsys.readouterr().out.count("computed each time") == 4


@pytest.mark.parametrize("name", ["nets", "acme.nets"])
def test_a_class_of_an_imported_module_is_that_of_its_file(ours, name, monkeypatch, forked):
    monkeypatch.syspath_prepend(str(ours / "lab"))
    file = write(f"lab/{name.replace('.', '/')}.py", PLAIN)
    (Path(file).parent / "__init__.py").touch()
    options = {"seeds": 1, "set": FAST, "track": False}
    found = [evaluate(importlib.import_module(name).Plain, "web", **options) for _ in "12"]
    model = load_recipe(found[0].recipe).model.name
    assert model == ("acme.nets:Plain" if "." in name else "lab/nets.py:Plain")
    again = run(model, "web")
    assert found[0].row["digests"] == found[1].row["digests"] == again.row["digests"]
    sys.modules.pop(name)


def test_the_default_dtype_of_the_program_changes_no_number(ours):
    digests, means = [], []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            row = evaluate("mlp", "web", 1, set=FAST | {"model.hidden_dim": 8}, track=False).row
            assert torch.get_default_dtype() == dtype
        finally:
            torch.set_default_dtype(torch.float32)
        digests.append(row["digests"])
        means.append(next(Store().records()).run.epochs["train_loss"])
        shutil.rmtree("store")
    assert digests[0] == digests[1]
    assert means[0] == means[1]


def test_the_bytes_of_its_files_are_its_identity(ours):
    write("lab/helper.py", "SIZE = 3\n")
    write("lab/plain.py", "import helper\n" + textwrap.dedent(PLAIN))
    digests = [files_digest("lab/plain.py:Plain")]
    for file, text in (("helper", "SIZE = 4\n"), ("plain", "import helper  # of sizes\n" + textwrap.dedent(PLAIN))):
        write(f"lab/{file}.py", text)
        digests.append(files_digest("lab/plain.py:Plain"))
    assert len({*digests}) == 3
    write("lab/other.py", "")
    assert files_digest("lab/plain.py:Plain") == digests[-1]
    assert files_digest("gcn") is None


@pytest.mark.parametrize(("version", "same"), [(1, True), (2, False)])
def test_a_version_of_a_module_of_this_project_that_it_imports_counts(ours, monkeypatch, version, same):
    write("lab/plain.py", "from gt_models.layers import pooling\n" + textwrap.dedent(PLAIN))
    before = files_digest("lab/plain.py:Plain")
    monkeypatch.setattr("gt_bench.plugins.models.version_of", lambda name: version if name.endswith("pooling") else 1)
    assert (files_digest("lab/plain.py:Plain") == before) is same


def test_a_seed_has_the_same_numbers_whatever_ran_before_it(ours, forked):
    head = "import random, torch\nimport numpy as np\nG, COUNT = torch.Generator(), [0]\n"
    noise = "data.x = data.x * (COUNT[0] + torch.rand(1, generator=G) + random.random() + np.random.rand())"
    lines = f"if self.training: COUNT[0] += 1; {noise}\n        h = get"
    write("a.py", head + textwrap.dedent(PLAIN).replace("h = get", lines))
    losses = {}
    for seeds in ([0, 1], [1]):
        shutil.rmtree("store", ignore_errors=True)
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(len(seeds))  # what a fork finds is random in a new process
        try_pair("a.py:Plain", "web", FAST, seeds)
        for record in Store().records():
            run = record.run
            losses.setdefault(run.seed, []).append(run.epochs["train_loss"])
    assert losses[1][0] == losses[1][1] != losses[0][0]


def test_an_edited_file_is_read_again(ours, forked):
    write("a.py", PLAIN)
    assert find("a.py:Plain").cls is find("a.py:Plain").cls
    first = run("a.py:Plain", "web").row
    write("a.py", PLAIN.replace("width=8", "width=9"))
    second = run("a.py:Plain", "web").row
    assert second["parameters"] > first["parameters"]
    assert second["digests"] != first["digests"]


def test_encodings_are_attributes(ours, forked):
    text = PLAIN.replace("in_channels, width", "in_channels + 2, width")
    write("a.py", text.replace("data.x", "torch.cat([data.x, data.laplacian_eigenvectors], 1)"))
    assert run("a.py:Plain", "many", {"encodings.laplacian.k": 2}).row["status"] == "ok"
    with pytest.raises(UserError) as error:
        run("a.py:Plain", "many")
    assert "--set encodings.laplacian" in error.value.remedy


def test_targets_are_not_handed_over(ours):
    write("a.py", PLAIN.replace("self.encode(data.x)", "self.encode(data.x * (1 if data.y is None else 0))"))
    find("a.py:Plain")
    model = registry.create_model("a.py:Plain", in_dim=4, out_dim=3, level="node")
    edges = torch.zeros(2, 0, dtype=torch.long)
    batch = GraphBatch(torch.randn(5, 4), edges, torch.tensor([0, 5]), y=torch.zeros(5).long())
    assert model(batch).std() > 0


@pytest.mark.parametrize(("dataset", "given"), [("many", {}), ("web", {"batch.parts": 3}), ("web", {})])
def test_a_layer_that_caches_its_graph_is_refused_where_there_are_several(ours, dataset, given, forked):
    """It would use the edges of the first batch for all others."""
    write("a.py", """
        import torch
        from torch_geometric.nn import GCNConv, global_mean_pool

        class Cached(torch.nn.Module):
            def __init__(self, in_dim, out_dim, level):
                super().__init__()
                self.level, self.conv = level, GCNConv(in_dim, out_dim, cached=True)

            def forward(self, data):
                h = self.conv(data.x, data.edge_index)
                return h if self.level == "node" else global_mean_pool(h, data.batch)
    """)  # fmt: skip
    if dataset == "web" and not given:
        assert run("a.py", dataset).row["status"] == "ok"
        return
    with refused(UserError, value="GCNConv", remedy="remove cached=True"):
        run("a.py", dataset, given)


def test_a_registered_model_in_a_file_of_ones_own(ours):
    write("own.py", REGISTERED)
    info = find("own.py:Ours")
    assert (info.levels, info.cost) == (("node",), "n d")
    assert run("own.py:Ours", "web").row["status"] == "ok"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("import torch\n", "import torhc\n", "import torhc"),
        ("def __init__(self,", "def __init__ self,", "def __init__ self"),
        ("import torch\n", "import torch, sys\n    sys.exit(2)\n", "sys.exit"),
        ("self, data)", "self, nodes, graph)", "def forward"),
        ("width=8", "width", "def __init__"),
        ("nn.Linear(width, num_classes)", "nn.Linear(width, 7)", "def forward"),
        ("return self.head(", "return (", "def forward"),
        ("return self.head(", "return self.head(float('nan') * ", "def forward"),
        ("data.x)", "data.x.T)", "data.x.T"),
        ("Linear(in_channels, width)", "Linear(in_channels, 'x')", "'x'"),
        ("Linear(in_channels, width)", "LazyLinear(width)", "def __init__"),
        ("return self.head(", "return torch.no_grad()(self.head)(", "def forward"),
        ("return self.head(", "data.x.mul_(2); return self.head(", "def forward"),
        ("return self.head(", "data.x.numpy()[0] = 7; return self.head(", "def forward"),
        ("return self.head(", "raise SystemExit(0); return self.head(", "raise SystemExit"),
        ("class Plain(torch.nn.Module)", "class Plain", "class Plain"),
        ("class Plain(",
         "from gt_models import register_model as name\n    @name('gcn', levels=('node',), cost='n')\n    class Plain(",
         "@name"),
    ],
    ids=[
        "absent import", "no Python", "exits at the import", "forward takes other things", "argument without value",
        "wrong width", "no head", "nan", "wrong product", "constructor raises", "lazy layer", "no gradient",
        "changes x", "changes x by NumPy", "exits in forward", "no module", "name of the library",
    ],
)  # fmt: skip
def test_each_mistake_names_file_and_line(ours, old, new, line, forked):
    assert old in PLAIN
    write("lab/plain.py", PLAIN.replace(old, new))
    with pytest.raises(UserError) as error:
        run("lab/plain.py:Plain", "web")
    assert f"lab/plain.py: line {line_of('lab/plain.py', line)}:" in str(error.value)
    assert registry.model_info("gcn").cls.__module__ == "gt_models.baselines.gcn"


def test_a_module_without_parameters(ours, forked):
    write("a.py", """
        import torch

        class Empty(torch.nn.Module):
            def __init__(self, in_dim, out_dim):
                super().__init__()
                self.layers = [torch.nn.Linear(in_dim, out_dim)]

            def forward(self, data):
                return self.layers[0](data.x)
    """)  # fmt: skip
    with refused(RecipeError, place="model") as error:
        run("a.py:Empty", "web")
    assert "a.py: line 4: Empty has no parameter to train" in error.value.problem


def test_graph_level_output_per_node_is_told_to_pool(ours, forked):
    write("a.py", PLAIN.replace('if self.level == "node" else', "if True else"))
    with pytest.raises(UserError) as error:
        run("a.py:Plain", "many")
    assert "global_mean_pool" in error.value.remedy


@pytest.mark.parametrize(
    "name", ["nowhere.py:Plain", "lab/plain.py:Plian", "lab/plain.py:torch", "lab.plain:Plian", "gcnn"]
)
def test_names_that_are_no_model(ours, name):
    write("lab/plain.py", PLAIN)
    with pytest.raises((OwnModelError, RecipeError)):
        try_pair(name, "web")


def test_a_model_of_an_installed_package(ours, monkeypatch):
    install(ours, "gt_bench.models", {"acme-net": "acme.nets:Plain"}, monkeypatch)
    write("site/acme/__init__.py", "")
    write("site/acme/nets.py", "from acme.sizes import SIZE\n" + textwrap.dedent(PLAIN))
    write("site/acme/sizes.py", "SIZE = 1\n")
    assert run("acme-net", "web").row["status"] == "ok"
    before = files_digest("acme-net")
    write("site/acme/sizes.py", "SIZE = 2\n")
    assert files_digest("acme-net") != before


@pytest.mark.parametrize(
    ("name", "value"), [("acme-net", "acme.nets:Plian"), ("acme-net", "acme.nets:SIZE"), ("gcn", "acme.nets:Plain")]
)
def test_an_entry_point_that_fails(ours, monkeypatch, name, value):
    install(ours, "gt_bench.models", {name: value}, monkeypatch)
    write("site/acme/__init__.py", "")
    write("site/acme/nets.py", textwrap.dedent(PLAIN) + "SIZE = 3\n")
    with pytest.raises(OwnModelError):
        try_pair(name, "web")


def test_the_model_that_the_guide_shows_works(ours, forked):
    block = (ROOT / "docs/add_a_model.md").read_text().split("```python\n")[1].split("```")[0]
    assert len(block.splitlines()) <= 25
    assert "gt_models" not in block
    write("lab/my_model.py", block)
    for dataset in ("web", "many"):
        assert run("lab/my_model.py:MyModel", dataset, {"model.hidden": 8}).row["status"] == "ok"


def test_batch_norm_on_a_row_per_graph_trains_whatever_is_left_over(ours, forked):
    write("normed.py", """
        from torch import nn
        from torch_geometric.nn import global_mean_pool

        class Normed(nn.Module):
            def __init__(self, in_dim, out_dim):
                super().__init__()
                self.head = nn.Sequential(nn.Linear(in_dim, 8), nn.BatchNorm1d(8), nn.Linear(8, out_dim))

            def forward(self, x, batch):
                return self.head(global_mean_pool(x, batch))
    """)  # fmt: skip
    trained = len(PackedDataset.open(prepare("many", Path("data"), [], lambda _: None).folder).split("train", 0))
    found = run("normed.py:Normed", "many", {"batch.graphs": trained - 1})
    assert found.row["status"] == "ok"
    assert next(Store().records()).run.digests.last_batch == "joined"
    for batch in ({"batch.graphs": trained - 1, "batch.last": "alone"}, {"batch.graphs": 1}):
        with pytest.raises(UserError) as error:
            run("normed.py:Normed", "many", batch)
        assert "set batch.graphs to 2 or more" in error.value.remedy
