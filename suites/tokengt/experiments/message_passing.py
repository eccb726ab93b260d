"""HOT, Theorem 2, first half: can two sparse layers Enc_{2 -> 2} with kernel attention be any message passing layer?

    equation 21            As published: weights phi(Q_j) phi(K_i) / Z_j, all linear layers light (Section 4.1). A class
        gives a weighted mean over its keys, which does not depend on the number of keys. Nodes whose neighbours have
        the same proportions therefore have equal outputs for any weights: all nodes if all features are equal (message
        passing counts neighbours), and the centres of two stars, one of which has each leaf of the other twice. DRAWS
        draws of the weights show it
    coefficients of one    As in the proof of Theorem 1: alpha is 1 on its class, so that attention is the linear layer
        of Equation 1. Explicit weights then give the message passing layer x_v' = U(x_v, sum over u -> v of M(x_u, x_v,
        e_uv)), where U and M have one hidden layer each and x_v' has separate channels

The layers are those of the library, in float64, with layer norms for equation 21 (a norm of equal values is equal) and
without them otherwise.
"""

# mypy: disable-error-code="arg-type, union-attr"

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot import EncoderLayer, HigherOrderAttention
from gt_models.hot.equivalence_classes import EquivalenceClass
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from gt_models.layers.performer import RandomFeatures

KERNELS = ("softmax", "relu")
EQUAL, STARS = "equal features", "two stars"
CASES = [
    *(f"equation 21, {kernel} kernel, {what}" for kernel in KERNELS for what in (EQUAL, STARS)),
    "coefficients of one",
]
QUICK = CASES
DRAWS, WIDTH, HEADS, NODES = 20, 8, 2, 24
X, E, M, OUT, HIDDEN = 3, 2, 4, 3, 16  # widths of the message passing layer
ROUNDING = ("differ", "error")


def compute(case: str, data: Path) -> dict[str, Any]:
    """Compares the outputs of nodes, or the two layers with message passing.

    Returns:
        `degrees` of the compared nodes. `differ`: largest difference of their outputs over all draws, relative to the
            largest entry. `control`: whether nodes with other features have other outputs. For coefficients of one:
            relative `error` of the two layers.
    """
    torch.manual_seed(0)
    if case == "coefficients of one":
        batch = _random_graph()
        wanted = message_passing(batch, weights := _drawn())
        found = two_layers(batch, weights)
        return {"nodes": batch.num_nodes, "edges": batch.num_edges, "error": _relative(found - wanted, wanted)}
    _, kernel, what = case.split(", ")
    batch = _random_graph() if what == EQUAL else _stars()
    if what == EQUAL:
        batch.x, batch.edge_attr = torch.ones_like(batch.x), torch.ones_like(batch.edge_attr)
    compared = range(batch.num_nodes) if what == EQUAL else (0, 3)  # the centres
    degrees = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)[list(compared)]
    differ, control = 0.0, []
    for _ in range(DRAWS):
        out = encoded(batch, kernel.removesuffix(" kernel"))
        rows = out[list(compared)]
        differ = max(differ, _relative(rows - rows[:1], out))
        control.append(_relative(out[1] - out[0], out) > 1e-3)
    return {
        "degrees": sorted(set(degrees.tolist())),
        "differ": differ,
        "control": all(control) if what == STARS else None,
    }


def encoded(batch: GraphBatch, kernel: str) -> Tensor:
    """Returns the nodes' entries [N, WIDTH] after two layers Enc_{2 -> 2} with kernel attention.

    Weights are drawn from N(0, 1 / fan-in).
    """
    support, width = Support.sparse(batch), batch.x.size(1) + batch.edge_attr.size(1)
    features = RandomFeatures(WIDTH // HEADS, None, None, kernel).double()
    values = nn.functional.pad(_entries(batch, support), (0, WIDTH - width))
    for _ in range(2):
        layer = EncoderLayer(
            HigherOrderAttention(2, 2, WIDTH, WIDTH, WIDTH, HEADS, attention="kernel"), WIDTH, WIDTH, 0.0, "relu", False
        ).double()
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5 if parameter.dim() < 2 else parameter.size(-1) ** -0.5)
        with torch.no_grad():
            values = layer(values, support, features)
    return values[: batch.num_nodes]


def message_passing(batch: GraphBatch, weights: dict[str, Tensor]) -> Tensor:
    """Returns the output of the message passing layer by its definition, [N, OUT]."""
    source, target = batch.edge_index
    given = torch.cat([batch.x[source], batch.x[target], batch.edge_attr], 1)  # type: ignore[list-item]
    hidden = (given @ weights["M1"] + weights["m"]).relu()
    messages = torch.zeros(batch.num_nodes, M, dtype=torch.float64).index_add(0, target, hidden @ weights["M2"])
    return (torch.cat([batch.x, messages], 1) @ weights["U1"] + weights["u"]).relu() @ weights["U2"]


def two_layers(batch: GraphBatch, weights: dict[str, Tensor]) -> Tensor:
    """Returns the output [N, OUT] of Enc_{2 -> 2} twice (Equations 8 and 9), with attention coefficients of 1.

    Channels are: x of a node or e of an edge, message or sum of messages, output.
    """
    support, given = Support.sparse(batch), max(X, E)
    dim = given + M + OUT
    at_x, at_m, at_out, at_e = slice(0, X), slice(given, given + M), slice(given + M, dim), slice(0, E)
    values = nn.functional.pad(_entries(batch, support, apart=False), (0, dim - given))
    # node to node and edge to edge; the entries of the source, the target and the edge to the edge; edges u -> v to v
    node, edge = ((0, 1, 2, 3),), ((0, 2), (1, 3))
    source, target, arriving = ((0, 1, 2), (3,)), ((0, 1, 3), (2,)), ((0,), (1, 2, 3))
    same = torch.eye(dim, dtype=torch.float64)

    def linear(
        in_dim: int,
        out_dim: int,
        light: bool,
        blocks: dict[Any, Tensor],
        bias: tuple[tuple[Any, ...], Tensor] | None = None,
    ) -> EquivariantLinear:
        layer = EquivariantLinear(2, 2, in_dim, out_dim, light=light).double().requires_grad_(False)
        layer.weight.zero_()
        for partition, weight in blocks.items():
            at = layer.classes.index(EquivalenceClass(2, 2, partition))
            layer.weight[at * in_dim : (at + 1) * in_dim] = weight
        if bias is not None:
            layer.bias[layer.patterns.index(bias[0])] = bias[1]  # type: ignore[index]
        return layer

    def block(rows: slice, columns: slice, weight: Tensor, shape: tuple[int, int]) -> Tensor:
        found = torch.zeros(shape, dtype=torch.float64)
        found[rows, columns] = weight
        return found

    def encoder(
        values: Tensor, attention: EquivariantLinear, inner: EquivariantLinear, outer: EquivariantLinear
    ) -> Tensor:
        attended = attention(values, support)
        return attended + outer(inner(attended, support).relu(), support)

    every, read = slice(None), (dim, HIDDEN)
    first, second, third = weights["M1"].split([X, X, E])
    values = encoder(
        values,
        linear(dim, dim, False, {node: same, edge: same}),
        linear(dim, HIDDEN, True, {source: block(at_x, every, first, read), target: block(at_x, every, second, read),
        edge: block(at_e, every, third, read)},
               (((0,), (1,)), weights["m"])),
        linear(HIDDEN, dim, True, {edge: block(every, at_m, weights["M2"], (HIDDEN, dim))}),
    )  # fmt: skip
    from_x, from_m = weights["U1"].split([X, M])
    values = encoder(
        values,
        linear(
            dim,
            dim,
            False,
            {node: same, edge: same, arriving: block(at_m, at_m, torch.eye(M, dtype=torch.float64), (dim, dim))},
        ),
        linear(
            dim,
            HIDDEN,
            True,
            {node: block(at_x, every, from_x, read) + block(at_m, every, from_m, read)},
            (((0, 1),), weights["u"]),
        ),
        linear(HIDDEN, dim, True, {node: block(every, at_out, weights["U2"], (HIDDEN, dim))}),
    )
    return values[: batch.num_nodes, at_out]


def _entries(batch: GraphBatch, support: Support, apart: bool = True) -> Tensor:
    """Returns node features on the diagonal and edge features on the edges, [N + E, .].

    They are in separate channels if `apart`, otherwise in the same ones.
    """
    x, e = batch.x, batch.edge_attr
    left, right = (
        (0, e.size(1)) if apart else (0, max(X, E) - x.size(1)),
        (x.size(1), 0) if apart else (0, max(X, E) - e.size(1)),
    )
    ordered = torch.empty_like(e).index_copy(0, support.edge_rows - batch.num_nodes, e)
    return torch.cat([nn.functional.pad(x, left), nn.functional.pad(ordered, right)])


def _random_graph() -> GraphBatch:
    """Returns a connected graph. Each pair of neighbours has two edges with different features."""
    rng = torch.Generator().manual_seed(1)
    pairs = {(int(torch.randint(v, (1,), generator=rng)), v) for v in range(1, NODES)}
    pairs |= {(a, b) for a, b in torch.randint(NODES, (NODES // 2, 2), generator=rng).tolist() if a < b}
    edges = torch.tensor(sorted(pairs)).T
    edges = torch.cat([edges, edges.flip(0)], 1)
    x, e = (
        torch.randn(rows, width, generator=rng, dtype=torch.float64) for rows, width in ((NODES, X), (edges.size(1), E))
    )
    return GraphBatch(x, edges, torch.tensor([0, NODES]), e)


def _stars() -> GraphBatch:
    """Returns two stars in one graph.

    Centre 0 has leaves 1 and 2. Centre 3 has leaves 4 and 5 like 1, and leaves 6 and 7 like 2.
    """
    rng = torch.Generator().manual_seed(1)
    centre, *leaves = torch.randn(3, X, generator=rng, dtype=torch.float64)
    x = torch.stack([centre, *leaves, centre, leaves[0], leaves[0], leaves[1], leaves[1]])
    edges = torch.tensor([[1, 0], [2, 0], [4, 3], [5, 3], [6, 3], [7, 3]]).T
    edges = torch.cat([edges, edges.flip(0)], 1)
    return GraphBatch(x, edges, torch.tensor([0, 8]), torch.ones(edges.size(1), E, dtype=torch.float64))


def _drawn() -> dict[str, Tensor]:
    shapes = {
        "M1": (2 * X + E, HIDDEN),
        "m": (HIDDEN,),
        "M2": (HIDDEN, M),
        "U1": (X + M, HIDDEN),
        "u": (HIDDEN,),
        "U2": (HIDDEN, OUT),
    }
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def _relative(difference: Tensor, whole: Tensor) -> float:
    return (difference.abs().max() / whole.abs().max()).item()
