"""Symmetries, independence of graphs, gradients and refused input of every registered model in its settings."""

import copy
import pickle
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from gt_models import list_models, model_info
from gt_models.batch import BatchError, MissingEncoding
from tests.gt_models.checks import collate, permute
from tests.gt_models.every_model import batch, build, graphs, outputs, redrawn

# settings besides the small ones of `every_model`
SETTINGS = {
    "appnp": [{"alpha": 0.5}],
    "classic-gnn": [
        {},
        {"convolution": "gat", "residual": True, "normalisation": "layer", "input_layer": True},
        {"convolution": "sage", "normalisation": "batch", "all_layers": True, "residual": True},
    ],
    "difformer": [{}, {"kernel": "sigmoid", "alpha": 0.3}],
    "edge-transformer": [
        {"rrwp_dim": 0},
        {"edge_dim": None},
        {"ffn_residual": True},
        {"pooling": "set2set"},
        {"pooling": "mean"},
        {"activation": "relu", "head": "constant"},
    ],
    "edge-transformer-released": [{}, {"rrwp_dim": 0, "edge_dim": None}, {"pooling": "set2set"}],
    "edge-transformer-brec-released": [{"output_norm": False}, {"shared_weights": False, "output_norm": False}],
    "exphormer": [
        {"expander_degree": 2},
        {"expander_degree": 2, "local_layer": "gat", "virtual_nodes": 2, "self_loops": True},
        {
            "local_layer": "gatedgcn",
            "laplacian_dim": 3,
            "pre_layer": True,
            "pooling": "max",
            "self_loops": True,
            "expander_degree": 0,
        },
        {"local_layer": "none", "edge_dim": None, "expander_degree": 0, "virtual_nodes": 1},
    ],
    "gat": [
        {},
        {"version": "v2", "normalisation": "batch", "residual": True, "num_layers": 3},
        {"self_loops": False},
        {"laplacian_dim": 2, "normalisation": "layer", "pooling": "max", "edge_dim": None},
    ],
    "gatedgcn": [
        {"num_layers": 2, "hidden_dim": 16},
        {"batch_norm": False, "pooling": "sum"},
        {"edge_features": False},
    ],
    "gcn": [
        {},
        {"normalisation": "batch", "residual": True, "pooling": "sum", "num_layers": 3, "rrwp_dim": 0},
        {"laplacian_dim": 2, "normalisation": "layer", "activation": "gelu", "pooling": "max"},
    ],
    "gcnii": [{}, {"shared_weights": False, "residual": True, "normalisation": "layer"}],
    "gin": [
        {},
        {"edge_dim": None, "readout": "all", "train_eps": True},
        {"mlp_norm": False, "normalisation": "layer", "pooling": "max", "rrwp_dim": 0},
    ],
    "gin-bare": [{"pooling": "mean"}, {"num_layers": 3, "pooling": "max"}],
    "gps": [
        {"num_layers": 2},
        {"local_layer": "gat", "norm": "layer", "head": "constant"},
        {"local_layer": "gcn", "attention": "performer", "num_features": 3, "activation": "gelu"},
        {"local_layer": "none", "pooling": "max"},
        {"attention": "none", "laplacian_dim": 2, "rwse_dim": 0},
        {"edge_dim": None, "rwse_dim": 0, "head_layers": 0},
    ],
    "graphormer": [
        {"num_layers": 2},
        {"num_layers": 2, "norm": "pre", "final_norm": True, "ffn_dim": 16},
        {"num_layers": 2, "edge_dim": None},
        {"num_layers": 2, "embedding_norm": False, "path_length": 1},
    ],
    "grit": [
        {"num_layers": 2},
        {"norm": "layer", "degree_scaler": False, "clamp": None, "edge_dim": None, "head_layers": 0},
        {"edge_dim": None, "edge_vector": True, "pooling": "mean", "head": "constant", "activation": "gelu"},
        {"head_unit_length": True, "pooling": "max"},
    ],
    "heterophilous-gnn": [
        *({"layer": layer} for layer in ("resnet", "gcn", "sage", "gat", "gat-sep", "gt", "gt-sep")),
        {"normalisation": "batch"},
        {"normalisation": "none"},
    ],
    "hot": [
        *({"attention": a, **others} for a in ("softmax", "kernel") for others in ({}, {"form": "dense"})),
        {"input_order": 1, "attention": "softmax"},
        {"kernel": "generalized", "global_classes": False, "edge_dim": None},
        {"qk_dim": 6, "v_dim": 10, "ffn_dim": 5},
    ],
    # not its softmax kernel, whose stabiliser is that of all graphs of a batch
    "hot-released": [
        {"attention": "softmax"},
        {},
        {"readout_dim": 12, "readout_heads": 3, "qk_dim": 4, "v_dim": 6, "head_dims": [5], "input_order": 1},
    ],
    "i2gnn-ppgt": [{}, {"subgraph": "source"}, {"edge_dim": None, "edge_vector": True, "subgraph_hops": 1}],
    "linkx": [{"num_layers": 2}],
    "mlp": [{"num_layers": 3, "activation": "gelu", "pooling": "sum"}],
    "mlp-pi": [{}, {"form": "dense", "normalize_sums": True}, {"global_classes": False, "edge_dim": None}],
    "nagphormer": [{"hops": 2, "num_layers": 2}],
    "nodeformer": [{"bias_order": order, "edge_loss": 0.0} for order in (0, 1, 2)],
    "ogb-gnn": [
        {"num_layers": 3},
        {"convolution": "gcn", "residual": True},
        {"convolution": "gatv2", "virtual_node": False, "edge_dim": None},
    ],
    "polynormer": [
        *(
            {"attention": a, "relu": r}
            for a in ("local", "global", "local-to-global", "local-and-global")
            for r in (0, 1)
        ),
        {"norm": "none", "pooling": "max"},
        {"local_layer": "random-walk", "norm": "none", "version": "v2"},
        {"local_layer": "gcn", "version": "v2", "relu": True},
    ],
    "polynormer-released": [
        {},
        {
            "relu": True,
            "local_layer": "gcn",
            "beta": "constant",
            "beta_init": 0.9,
            "batch_norm": True,
            "pre_norm": True,
        },
        {"relu": True, "local_layer": "gcn", "beta": "raw", "beta_init": 0.5, "input_layer": False},
    ],
    "ppgn": [{"num_layers": 2}, {"edge_dim": None}, {"features": False, "normalisation": "batch"}],
    "ppgt": [
        {},
        {"attention": "sdp", "norm": "rms", "num_frequencies": 0},
        {"norm": "batch", "pooling": "mean"},
        {"norm": "layer", "edge_dim": None, "edge_vector": True, "pair_dim": 4},
        {"pooling": "class-attention", "head": "constant"},
    ],
    "ppgt-released": [{}, {"norm": "batch", "pooling": "mean", "stem_ffn_init": "kaiming"}, {"position_dim": 2}],
    "s2g": [{}, {"plus": True}, {"plus": True, "normalize_sums": True, "unit_norm": True}],
    "sage": [
        {},
        {"aggregation": "max", "residual": True, "normalisation": "layer"},
        {"aggregation": "sum", "unit_norm": True, "activation": "gelu", "pooling": "max"},
    ],
    "sat": [{}, {"edge_dim": None, "rwse_dim": 0, "degree_scale": False, "pooling": "sum"}],
    "siam": [{}, {"normalisation": "batch", "last_activation": False}],
    "tokengt": [
        {},
        {"attention": "performer", "num_features": 9, "sparse_equivariant_basis": True},
        {"type_identifiers": False, "node_identifiers": "given"},
        {"node_identifiers": "none", "edge_dim": None, "ffn_dim": 7},
    ],
    "tokengt-released": [{}, {"attention": "performer"}],
}
LEVEL = {
    "tokengt": {"hyperedge": {"order": 3, "sparse_equivariant_basis": False}},
    "tokengt-released": {"hyperedge": {"order": 3}},
    "hot": {"hyperedge": {"input_order": 1}},
    "hot-released": {"hyperedge": {"input_order": 1}},
}
CASES = [
    pytest.param(name, level, settings | LEVEL.get(name, {}).get(level, {}), id=f"{name}-{level}-{number}")
    for name in list_models()
    for level in model_info(name).levels
    for number, settings in enumerate(SETTINGS.get(name, [{}]))
    if level != "attention"  # of which a batch is padded: test_tokengt_attention.py
]
# parameters without a gradient: a softmax removes a number that is the same for all; nothing reads the last edge states
SILENT = {
    "nagphormer": r"readout\.bias",
    "exphormer": r"layers\.0\.local\.edge_norm\.\w+",
    "gatedgcn": r"layers\.[01]\.edge_norm\.\w+",
}


def made(name: str, level: str, settings: dict) -> nn.Module:
    return redrawn(build(name, level=level, **settings).double()).eval()


def rows(values: Tensor, level: str, order: Tensor, shuffle: Tensor) -> Tensor:
    """The output of a graph where nodes and edges have another order."""
    if level == "pair":
        n = len(order)
        return values.view(n, n, -1)[order][:, order].flatten(0, 1)
    return values[order] if level == "node" else values[shuffle] if level == "edge" else values


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level", "settings"), CASES)
def test_equivariant_and_independent_of_the_other_graphs(name, level, settings):
    model, singles = made(name, level, settings), graphs()
    with torch.no_grad():
        alone = [outputs(model, one) for one in singles]
        together = outputs(model, collate(singles))
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)
        for one, expected in zip(singles, alone, strict=True):
            order, shuffle = torch.randperm(one.num_nodes), torch.randperm(one.num_edges)
            found = outputs(model, permute(one, order, shuffle))
            torch.testing.assert_close(found, rows(expected, level, order, shuffle), rtol=1e-9, atol=1e-9)
        # numbers that are not finite stay in their graph
        first, _, last = singles
        for bad in (first, last):
            bad.x[0] = torch.nan
            bad.encodings = {
                key: value.index_fill(0, torch.tensor([0]), torch.nan) if value.is_floating_point() else value
                for key, value in bad.encodings.items()
            }
        found = outputs(model, collate([first, graphs()[2], last]))
        torch.testing.assert_close(found[len(alone[0]) : -len(alone[2])], alone[2], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level", "settings"), CASES)
def test_every_parameter_has_a_gradient_and_a_seed_decides_every_bit(name, level, settings):
    data, runs = collate(graphs()), []
    for _ in range(2):
        model = made(name, level, settings)
        out = outputs(model, data)
        (out * torch.linspace(1, 2, out.numel(), dtype=out.dtype).view_as(out).cos()).sum().backward()
        runs.append([out.detach(), *(parameter.grad for parameter in model.parameters())])
    for key, parameter in model.named_parameters():
        if not re.fullmatch(SILENT.get(name, ""), key):
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key
            assert parameter.grad.abs().max() > 0, key
    pairs = zip(*runs, strict=True)
    assert all(one is other is None or torch.equal(one, other) for one, other in pairs)


# -- copies and other forms of the input


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models())
def test_copies_and_stored_weights_give_the_same(name, tmp_path):
    model, data = redrawn(build(name)).eval(), batch()
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    again = build(name).eval()
    again.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    torch.manual_seed(1)
    expected = outputs(model, data)
    for other in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.manual_seed(1)
        assert torch.equal(outputs(other, copy.deepcopy(data)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models())
def test_torch_geometric_data_and_batches_are_read(name):
    model, singles = redrawn(build(name).double()).eval(), graphs()
    listed = []
    for one in singles:
        listed.append(Data(x=one.x, edge_index=one.edge_index, edge_attr=one.edge_attr, **one.encodings))
        listed[-1].hyperedge_index_t = one.extras["hyperedge_index"].t()
        torch.testing.assert_close(outputs(model, listed[-1]), outputs(model, one), rtol=0, atol=0)
    if "shortest_path_edges" in model_info(name).encodings:  # numbers of edges, which torch_geometric does not shift
        with pytest.raises(BatchError, match="shortest_path_edges"):
            model(Batch.from_data_list(listed))
    else:
        found = outputs(model, Batch.from_data_list(listed))
        torch.testing.assert_close(found, outputs(model, collate(singles)), rtol=0, atol=0)


@pytest.mark.parametrize("name", list_models())
def test_reset_parameters_draws_everything_again(name):
    model = build(name)
    before = {key: value.clone() for key, value in model.named_parameters()}
    model.reset_parameters()
    drawn = {key for key, value in build(name).named_parameters() if value.dim() > 1 and value.std() > 0}
    assert not [key for key in drawn if torch.equal(model.get_parameter(key), before[key])]


# -- refused input


READ = [(name, part) for name in list_models() for part in model_info(name).encodings]
# settings with which a model reads an encoding
READS = {"laplacian_eigenvectors": {"laplacian_dim": 2}, "laplacian_eigenvalues": {"laplacian_dim": 2}}


def reading(name: str, part: str) -> nn.Module:
    given = {k: v for k, v in READS.get(part, {}).items() if k in model_info(name).arguments}
    if part == "second_eigenvector":
        given = {"version": "v2"}
    if part == "node_identifiers":
        given = {"node_identifiers": "given"}
    if part == "position":
        given = {"position_dim": 2}
    if part == "hops":
        given = {}
    return build(name, **given).double().eval()


@pytest.mark.parametrize(("name", "part"), READ)
def test_an_encoding_that_does_not_fit_is_refused(name, part):
    """More or fewer rows than nodes, pairs or graphs, too few channels, another device, or none."""
    model, data = reading(name, part), collate(graphs())
    value = data.encodings[part]
    model(data)
    for wrong in (value[:-1], torch.cat([value, value[:1]]), value[None], value.to("meta")):
        with pytest.raises(BatchError) as error:
            model(replace(data, encodings=data.encodings | {part: wrong}))
        assert error.value.part == part
    for others in (data.encodings | {part: value[:, :0]}, {k: v for k, v in data.encodings.items() if k != part}):
        with pytest.raises(MissingEncoding, match=part):
            model(replace(data, encodings=others))


@pytest.mark.parametrize(
    ("name", "part", "numbers"),
    [
        ("graphormer", "shortest_path_edges", [-2, 15, 16]),  # 8 edges of graph 2 begin at number 12
        ("exphormer", "expander", [-2, 5]),
        ("linkx", "number", [-1, 9]),
        ("graphormer", "shortest_path_distance", [-2]),
    ],
)
def test_numbers_of_other_nodes_or_edges_are_refused(name, part, numbers):
    model, data = build(name).double().eval(), collate(graphs())
    for number in numbers:
        value = data.encodings[part].clone()
        value[0, 0] = number
        with pytest.raises(ValueError, match=part):
            model(replace(data, encodings=data.encodings | {part: value}))
    with pytest.raises(ValueError, match=part):
        model(replace(data, encodings=data.encodings | {part: data.encodings[part] + 0.5}))


WITH_HYPEREDGES = [name for name in list_models() if "hyperedge" in model_info(name).levels]


@pytest.mark.parametrize("name", WITH_HYPEREDGES)
def test_hyperedges_that_do_not_fit_are_refused(name):
    model = build(name, level="hyperedge", **LEVEL.get(name, {}).get("hyperedge", {})).double().eval()
    data = collate(graphs())
    model(data)
    index = data.extras["hyperedge_index"]
    elsewhere = (torch.tensor([[0, 1, other]]) for other in (-1, 6, 12))
    for wrong in (None, index[:, :2], index[0], index.double(), *elsewhere):
        extras = data.extras | {"hyperedge_index": wrong} if wrong is not None else {}
        with pytest.raises(BatchError) as error:
            model(replace(data, extras=extras))
        assert error.value.part == "hyperedge_index"
    if name.startswith("tokengt"):
        with pytest.raises(BatchError) as error:
            model(replace(data, extras=data.extras | {"hyperedge_attr": data.extras["hyperedge_attr"][:-1]}))
        assert error.value.part == "hyperedge_attr"


@pytest.mark.parametrize("name", [n for n in list_models() if "edge_dim" in model_info(n).arguments])
def test_edge_features_that_do_not_fit_are_refused(name):
    model, data = build(name).double().eval(), collate(graphs())
    with pytest.raises(BatchError) as error:
        model(replace(data, edge_attr=None))
    assert error.value.part == "edge_attr"
    data.edge_attr = torch.randn(data.num_edges, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="3 columns"):
        model(data)


WITHOUT_X = {"nagphormer", "edge-transformer-brec-released", "tokengt-attention"}


@pytest.mark.parametrize("name", sorted({*list_models()} - WITHOUT_X))
def test_node_features_of_another_width_are_refused(name):
    model, data = build(name).double().eval(), collate(graphs())
    with pytest.raises(ValueError, match="columns"):
        model(replace(data, x=data.x[:, :3]))


# what the annotations of arguments do not say (test_unusual_settings.py has what they say)
IMPOSSIBLE = {
    "classic-gnn": [{"in_dim": [3, 2]}, {"num_heads": 3}],
    "edge-transformer": [{"num_heads": 3}, {"rrwp_dim": 3, "rrwp_hidden_dim": 8}, {"activation": "gelo"}],
    "edge-transformer-brec-released": [{"num_heads": 3}],
    "exphormer": [{"num_heads": 3}, {"laplacian_dim": 2, "pe_dim": 8}],
    "gat": [{"num_heads": 3}],
    "gcn": [{"activation": "rely"}],
    "gprgnn": [{"alpha": 1.5}],
    "gps": [
        {"num_heads": 3},
        {"num_heads": 3, "local_layer": "gat"},
        {"local_layer": "none", "attention": "none"},
        {"attention": "performer", "attn_dropout": 0.1},
        {"rwse_dim": 3, "pe_dim": 8},
    ],
    "graphormer": [{"num_heads": 3}],
    "grit": [{"num_heads": 3}, {"rrwp_dim": 0}, {"head_layers": 4}],
    "heterophilous-gnn": [{"num_heads": 3}],
    "hot": [
        {"num_heads": 3},
        {"v_dim": 9},
        {"input_order": 3},
        {"level": "hyperedge", "hyperedge_order": 2, "input_order": 2},
        {"level": "hyperedge", "hyperedge_order": 1},
        {"node_encoder": "cooccurrence"},
    ],
    "hot-released": [{"degree_embeddings": 4}],
    "hyper-sagnn": [{"hyperedge_order": 1}],
    "nagphormer": [{"in_dim": [3, 2]}, {"in_dim": 0}, {"num_heads": 3}],
    "nodeformer": [{"temperature": 0.0}, {"edge_loss": -1.0}],
    "polynormer": [{"hidden_dim": 9}],
    "polynormer-released": [
        {"hidden_dim": 9},
        {"beta": "raw"},
        {"beta_init": 0.5},
        {"input_layer": False, "attention": "global"},
        {"input_layer": False, "in_dim": [3, 4]},
    ],
    "ppgt": [{"num_heads": 3}, {"urpe": "x"}, {"hidden_dim": 2, "num_heads": 1}],
    "s2g": [{"set_dims": ()}],
    "sat": [{"num_heads": 3}, {"towers": 3}],
    "siam": [{"set_dims": ()}],
    "tokengt": [
        {"num_heads": 3},
        {"attention": "performer", "attn_dropout": 0.1},
        {"level": "graph", "graph_token": False},
        {"level": "edge", "order": 3},
        {"level": "node", "order": 3, "sparse_equivariant_basis": True},
    ],
    "tokengt-attention": [{"num_heads": 4}, {"out_dim": 2}],
}


@pytest.mark.parametrize(("name", "arguments"), [(n, a) for n, found in IMPOSSIBLE.items() for a in found])
def test_settings_that_exclude_each_other_are_refused(name, arguments):
    with pytest.raises(ValueError, match=r"\S"):
        build(name, **arguments)
