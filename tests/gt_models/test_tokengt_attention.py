"""Basis tensors equal loops over indices; a TokenGT head with constructed weights equals each of them (Lemma 1)."""

import itertools

import pytest
import torch

from gt_models import GraphBatch, create_model
from gt_models.layers.equivariant_basis import (
    basis_targets,
    equality_pattern,
    pair_indices,
    set_partitions,
)
from gt_models.layers.packing import Packing
from gt_models.layers.transformer import SelfAttention
from gt_models.tokengt_attention import GROUPS, GROUPS_ON_GPU, TokenGTAttention
from tests.gt_models import checks
from tests.gt_models.tokengt_attention_cases import SMALL, graphs


def test_eigenvectors_and_identifiers_of_another_dtype():
    """float64 arrays, which numpy creates by default, are accepted."""
    model = create_model("tokengt-attention", node_identifiers="laplacian", sign_flip=False, dropout=0.0, **SMALL)
    batch = checks.collate(graphs()).to("cpu", torch.float32)
    expected = model(batch)
    vectors = batch.encodings["laplacian_eigenvectors"]
    batch.encodings["laplacian_eigenvectors"] = vectors.double()
    assert torch.equal(model(batch), expected)
    assert torch.equal(model(batch, vectors.double()), expected)


@pytest.mark.parametrize("mu", range(15))
@pytest.mark.parametrize("dense", [True, False])
def test_a_head_set_by_hand_is_each_basis_tensor(mu, dense):
    """Lemma 1 with the weights of the proof.

    Queries [sgn(s, r) P_is], E^i, E^(class of keys); keys [P_jr], E^(class of queries), E^j.

    At inverse temperature a = 400 the weight of a wrong key is exp(-400 * 0.5) of a right one; tolerance 1e-12.
    """
    n, d_p, d_e, a = 5, 5, 2, 400.0
    torch.manual_seed(mu)
    p = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]
    types = torch.eye(2, dtype=torch.float64)  # rows: all different, all equal
    tuples = pair_indices(n)
    if not dense:
        keep = (torch.rand(n, n) < 0.5).fill_diagonal_(True).flatten()
        tuples = tuples[keep]
    basis = basis_targets(tuples, dtype=torch.float64)[mu]  # [T, 1 + T]
    x = torch.cat([p[tuples[:, 0]], p[tuples[:, 1]], types[equality_pattern(tuples)]], 1)  # w_in is the identity

    string = set_partitions(4)[mu]
    sign = [[1.0 if string[s] == string[2 + r] else -1.0 for r in range(2)] for s in range(2)]
    of_queries = types[int(string[0] == string[1])]
    of_keys = types[int(string[2] == string[3])]
    width = 4 * d_p + 2 * d_e
    attn = SelfAttention(width, 1).double()
    with torch.no_grad():
        weight, bias = torch.zeros(3, width, width, dtype=torch.float64), torch.zeros(3, width, dtype=torch.float64)
        eye, root = torch.eye(d_p, dtype=torch.float64), (a * width**0.5) ** 0.5
        for s, r in itertools.product(range(2), repeat=2):
            rows = slice((2 * s + r) * d_p, (2 * s + r + 1) * d_p)
            weight[0, rows, s * d_p : (s + 1) * d_p] = sign[s][r] * root * eye
            weight[1, rows, r * d_p : (r + 1) * d_p] = root * eye
        weight[0, 4 * d_p : 4 * d_p + d_e, 2 * d_p : 2 * d_p + d_e] = root * types
        weight[1, 4 * d_p + d_e :, 2 * d_p : 2 * d_p + d_e] = root * types
        bias[0, 4 * d_p + d_e :], bias[1, 4 * d_p : 4 * d_p + d_e] = root * of_keys, root * of_queries
        attn.qkv.weight.copy_(weight.flatten(0, 1))
        attn.qkv.bias.copy_(bias.flatten())
        padded = torch.nn.functional.pad(x, (0, width - x.size(1)))
        # values are one-hot vectors of the keys, so the output is the attention
        q, k, _ = attn.qkv(padded).view(-1, 3, width).unbind(1)
        values = torch.eye(len(tuples), dtype=torch.float64)
        out = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], values[None])[0]
    answered = basis[:, 0] == 0  # rows with an entry; the others are for [null]
    assert answered.any()
    torch.testing.assert_close(out[answered], basis[answered, 1:], rtol=0, atol=1e-12)
    # the output of the head in the layer is the basis tensor applied to the values
    with torch.no_grad():
        attn.qkv.weight[2 * width :].copy_(torch.randn(width, width))
        attn.out.weight.copy_(torch.eye(width))
        attn.out.bias.zero_()
        applied = basis[:, 1:] @ (padded @ attn.qkv.weight[2 * width :].T + attn.qkv.bias[2 * width :])
        layer = attn(padded, Packing.of(torch.tensor([len(tuples)])))
    torch.testing.assert_close(layer[answered], applied[answered], rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("types", [False, True])
def test_attention_by_loops(types, dense, implementation):
    """Eq. (5) on [null] and the tokens of a directed graph with a self-loop, the last 15 heads."""
    arguments = {"num_heads": 17, "input_linear": True, "pre_norm": True} if implementation else {}
    model = TokenGTAttention(type_identifiers=types, dense=dense, **SMALL, **arguments).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    n, pairs = 4, [(0, 1), (1, 2), (2, 1), (3, 0), (2, 2)]
    graph = GraphBatch(torch.zeros(n, 1).double(), torch.tensor(pairs).T, torch.tensor([0, n]))
    p = torch.randn(n, 8, dtype=torch.float64)
    others = [(i, j) for i in range(n) for j in range(n) if i != j] if dense else pairs
    tokens = [model.null_token]
    for u, v in [(v, v) for v in range(n)] + others:
        token = model.identifier_encoder.weight @ torch.cat([p[u], p[v]])
        token = token if model.identifier_encoder.bias is None else token + model.identifier_encoder.bias
        tokens.append(token + model.type_encoder.weight[int(u == v)] if types else token)
    if implementation:
        tokens = [model.input_linear.weight @ t + model.input_linear.bias for t in tokens]
        tokens = [
            (t - t.mean()) / (t.var(correction=0) + 1e-5).sqrt() * model.norm.weight + model.norm.bias for t in tokens
        ]
    out = model(graph, p)
    assert out.shape == (1, 15, len(tokens) - 1, len(tokens))
    for head in range(15):
        part = slice((head + model.num_heads - 15) * 4, (head + model.num_heads - 14) * 4)
        q = [model.query.weight[part] @ t + model.query.bias[part] for t in tokens]
        k = [model.key.weight[part] @ t + model.key.bias[part] for t in tokens]
        for i in range(1, len(tokens)):
            weights = torch.stack([torch.exp(q[i] @ k_j / 2) for k_j in k])
            torch.testing.assert_close(out[0, head, i - 1], weights / weights.sum(), rtol=1e-10, atol=1e-10)


CONFIGURATIONS = [
    ("none", False),
    ("none", True),
    ("random-first-order", True),
    ("orf-first-order", True),
    ("random", False),
    ("orf", False),
    ("laplacian", False),
    ("random", True),
    ("orf", True),
    ("laplacian", True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("dense", "implementation"), [(False, True), (True, False)])
@pytest.mark.parametrize(("kind", "types"), CONFIGURATIONS)
def test_the_ten_configurations_learn(kind, types, dense, implementation):
    width = 64 if kind.endswith("first-order") else 8
    arguments = (
        {"identifier_table": 64 if width == 64 else 8, "num_heads": 16, "input_linear": True, "pre_norm": True}
        if implementation
        else {}
    )
    model = TokenGTAttention(
        node_identifiers=kind,
        type_identifiers=types,
        dense=dense,
        **{**SMALL, "node_id_dim": width},
        sign_flip=not implementation,
        **arguments,
    ).double()
    batch = checks.collate(graphs())
    attention, targets = model(batch), model.targets(batch)
    assert attention.shape == targets.shape
    _, mask = model.tokens(batch)
    torch.testing.assert_close(attention.sum(-1), mask[:, None].expand(-1, 15, -1).to(attention.dtype))
    assert (attention[..., 1:].transpose(-1, -2)[~mask[:, None].expand(-1, 15, -1)] == 0).all()
    loss = (attention - targets).square().sum((-2, -1)).mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        blind = kind == "none" and not types and name.startswith("query") and name.endswith("weight")
        assert parameter.grad is not None, name
        assert blind or parameter.grad.abs().max() > 0, name
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        later = model.errors(batch).mean()
        later.backward()
        optimizer.step()
    assert later < loss


@pytest.mark.parametrize("kind", ["orf", "random"])
def test_one_table_of_identifiers_serves_all_graphs(kind):
    """Each graph uses different rows in random order, none twice; a new table is drawn each time."""
    model = TokenGTAttention(node_identifiers=kind, identifier_table=6, **SMALL).double()
    batch = checks.collate(graphs((5, 3, 6)))
    p = model._draw_for_nodes(batch)
    table = p[8:]  # the last graph uses all rows
    torch.testing.assert_close(p.norm(dim=1), torch.ones(14, dtype=p.dtype))
    if kind == "orf":
        torch.testing.assert_close(table @ table.T, torch.eye(6, dtype=p.dtype))
    places = [[int((table - row).abs().sum(1).argmin()) for row in p[part]] for part in (slice(5), slice(5, 8))]
    torch.testing.assert_close(table[places[0] + places[1]], p[:8])
    assert [len(set(chosen)) for chosen in places] == [5, 3]
    assert (model._draw_for_nodes(batch) - p).abs().max() > 0.1


def test_signs_flip_in_training_alone():
    batch = checks.collate(graphs())
    stored = batch.encodings["laplacian_eigenvectors"]
    for flips in (True, False):
        model = TokenGTAttention(node_identifiers="laplacian", sign_flip=flips, **SMALL).double()
        assert torch.equal(model.eval()._draw_for_nodes(batch), stored)
        ratio = model.train()._draw_for_nodes(batch) / stored
        assert set(ratio.round().unique().tolist()) == ({-1.0, 1.0} if flips else {1.0})


@pytest.mark.parametrize("dense", [False, True])
def test_a_batch_equals_its_graphs(dense):
    model = TokenGTAttention(node_identifiers="laplacian", dense=dense, **SMALL).double().eval()
    singles = graphs()
    together, alone = model(checks.collate(singles)), [model(g) for g in singles]
    _, mask = model.tokens(checks.collate(singles))
    for attention, single, real in zip(together, alone, mask, strict=True):
        columns = torch.cat([torch.tensor([True]), real])
        torch.testing.assert_close(attention[:, real][..., columns], single[0], rtol=1e-10, atol=1e-10)
    errors = torch.cat([model.errors(single) for single in singles])
    torch.testing.assert_close(model.errors(checks.collate(singles)), errors, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("groups", [GROUPS, GROUPS_ON_GPU])
def test_errors_by_groups_of_like_size_are_those_of_whole_matrices(groups, count, dense, monkeypatch):
    """Values and gradients, with fewer graphs than groups and with more."""
    monkeypatch.setattr("gt_models.tokengt_attention.GROUPS", groups)
    model = TokenGTAttention(node_identifiers="laplacian", sign_flip=False, dropout=0.0, dense=dense, **SMALL).double()
    batch = checks.collate(graphs(tuple(2 + (7 * i) % 5 for i in range(count))))

    def gradients(errors):
        return torch.autograd.grad(
            (errors * torch.linspace(1, 2, errors.numel(), dtype=errors.dtype).view_as(errors)).sum(),
            model.parameters(),
        )

    whole = (model(batch) - model.targets(batch)).square().sum((-2, -1))
    grouped = model.errors(batch)
    torch.testing.assert_close(grouped, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(grouped), gradients(whole), rtol=1e-9, atol=1e-11)
