"""TokenGT beyond message passing: graphs that it distinguishes and message passing does not, by its node identifiers.

The networks are untrained, in float64, as in `separation`. Identifiers are not determined by the graph: orthogonal
random features (ORF) are drawn in every forward pass. Eigenvectors (Lap) have any sign, and those of a repeated
eigenvalue any basis. A pair is therefore distinguished only if its outputs differ by more than FACTOR times the
difference of a graph and a relabelled copy with other identifiers. Weights are drawn in two ways:

    by inner products    d_p by d_p blocks are multiples of the identity. Identifiers therefore enter only by inner
        products P_u^T P_v, as in the heads of Lemma 1's proof. With orthonormal rows, as the paper assumes, the output
        does not depend on the draw. There is no layer norm, as in the proofs, because it mixes channels
    any weights          all weights are drawn independently, in the unchanged model

Not published: widths and layers. `1-WL` is a GIN with random weights. All eigenvectors are used (d_p is the size of the
largest graph), or the first K, whose rows are not orthonormal.
"""

# mypy: disable-error-code="arg-type, assignment, operator, union-attr, var-annotated"

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gt_bench.data.packed import DatasetUnavailable, PackedDataset
from gt_bench.tasks.isomorphism import relabel, widen
from gt_bench.utils.errors import UserError
from gt_models.baselines.gin import GIN
from gt_models.batch import GraphBatch
from gt_models.encodings.laplacian import laplacian
from gt_models.tokengt import TokenGT

DATASETS = ("csl", "exp", "cexp", "sr25")
PAIRS_OF_EXP = 20  # of 600: graphs 2 k and 2 k + 1
FACTOR, FLOOR, K = 100.0, 1e-14, 16
LAYERS, HEADS, SCALARS, VECTORS, GAIN = 4, 4, 4, 4, 3.0  # per head: SCALARS channels and VECTORS vectors of d_p
BY_PRODUCTS = {
    "ORF by inner products": "orf",
    "Lap by inner products": "laplacian",
    f"Lap of {K} by inner products": "laplacian",
}
FREELY = {"ORF, any weights": "orf", "Lap, any weights": "laplacian"}
METHODS = ("1-WL", *BY_PRODUCTS, *FREELY)
CASES = [f"{method}; {name}" for method in METHODS for name in DATASETS]
QUICK = ["1-WL; sr25", "ORF by inner products; sr25"]
ROUNDING = ("least of those apart", "largest of the others", "control")
NEEDS = DATASETS


class NoGraphs(UserError, RuntimeError):
    """A dataset is not packed."""


def compute(case: str, data: Path) -> dict[str, Any]:
    """Counts the pairs that a method distinguishes.

    Returns:
        `pairs`, and `apart`, the distinguished ones; the margins as in `separation`.

    Raises:
        NoGraphs: a dataset is not packed.
    """
    method, name = case.split("; ")
    packed = _packed(data.resolve(), name)
    numbers = pairs(name, packed)
    width = int(packed.sizes.max())
    network = drawn(method, packed.header.in_dim, width)

    @cache
    def of(graph: int) -> tuple[Tensor, float]:
        """Returns the output, and its difference to that of a relabelled copy."""
        batch = packed.batch(torch.tensor([graph])).to("cpu", torch.float64)
        copy = relabel(batch, torch.Generator().manual_seed(graph))
        with torch.no_grad():
            first, second = (network(encoded(one, method, width)) for one in (batch, copy))
        return first, (first - second).abs().max().item()

    apart, others, control = [], [0.0], 0.0
    for a, b in numbers:
        (first, noise), (second, other) = of(a), of(b)
        scale = torch.stack([first, second]).abs().max().item()
        worst = max(noise, other) / scale
        ratio = (first - second).abs().max().item() / scale / max(worst, FLOOR)
        (apart if ratio > FACTOR else others).append(ratio)
        control = max(control, worst)
    return {
        "pairs": len(numbers), "apart": len(apart), "least of those apart": f"{min(apart, default=0.0):.0e}",
        "largest of the others": f"{max(others):.0e}", "control": f"{control:.0e}",
    }  # fmt: skip


def pairs(name: str, packed: PackedDataset) -> list[tuple[int, int]]:
    """Returns pairs of non-isomorphic graphs.

    They are all pairs of one graph of each class of csl and of all graphs of sr25, and the first PAIRS_OF_EXP pairs of
    exp and cexp.
    """
    if name in ("exp", "cexp"):
        return [(2 * k, 2 * k + 1) for k in range(PAIRS_OF_EXP)]
    labels = packed.array("y").reshape(-1).tolist()
    first = [labels.index(label) for label in sorted(set(labels))]
    return [(a, b) for i, a in enumerate(first) for b in first[i + 1 :]]


def encoded(batch: GraphBatch, method: str, width: int) -> GraphBatch:
    """Returns the batch with the eigenvectors that the method reads."""
    if method.startswith("Lap"):
        k = K if method.startswith(f"Lap of {K}") else width
        batch.encodings = laplacian(batch, k=k, dtype=torch.float64)
    return batch


def drawn(method: str, in_dim: Any, width: int) -> nn.Module:
    """Returns the network with random weights.

    Args:
        method: one of METHODS.
        in_dim: input dimension.
        width: nodes of the largest graph.
    """
    torch.manual_seed(0)
    if method == "1-WL":
        network = (
            GIN(in_dim, 16, "graph", hidden_dim=16, num_layers=LAYERS, mlp_norm=False, normalisation="layer")
            .double()
            .eval()
        )
        widen(network)
        return network
    d_p = K if f"of {K}" in method else width
    make: Callable[[int], TokenGT] = lambda hidden: TokenGT(  # noqa: E731
        in_dim, 16, hidden_dim=hidden, num_heads=HEADS, num_layers=LAYERS, ffn_dim=HEADS * SCALARS, node_id_dim=d_p,
        node_identifiers=(BY_PRODUCTS | FREELY)[method],
    )  # fmt: skip
    if method in FREELY:
        network = make(16).double().eval()
        widen(network)
        return network
    network = make(HEADS * (SCALARS + VECTORS * d_p)).double().eval().requires_grad_(False)
    by_inner_products(network, d_p)
    return network


def by_inner_products(network: TokenGT, d_p: int) -> None:
    """Draws weights by which identifiers enter only by their inner products.

    Channels are HEADS * SCALARS numbers and HEADS * VECTORS vectors of d_p. For any orthogonal R, P R instead of P
    gives the same output.
    """
    numbers, vectors = HEADS * SCALARS, HEADS * VECTORS
    eye = torch.eye(d_p, dtype=torch.float64)

    def matrix() -> Tensor:
        """Returns a matrix [d, d] that maps numbers to numbers and vectors to vectors."""
        return torch.block_diag(_normal(numbers, numbers), torch.kron(_normal(vectors, vectors), eye))

    def with_numbers(shape: torch.Size) -> Tensor:
        return nn.functional.pad(_normal(shape[0], numbers), (0, shape[1] - numbers))

    # channels of a head are contiguous: its numbers, then its vectors
    places = torch.arange(numbers + vectors * d_p)
    heads = torch.cat([places[:numbers].view(HEADS, -1), places[numbers:].view(HEADS, -1)], 1).flatten()
    for parameter in network.parameters():
        parameter.zero_()
    network.identifier_encoder.weight[numbers:] = torch.kron(_normal(vectors, network.order), eye)
    for embedding in (network.node_encoder.embedding.weight, network.type_encoder.weight, network.graph_token):
        embedding[:, :numbers] = torch.randn(len(embedding), numbers, dtype=torch.float64)  # type: ignore[index]
    for layer in network.layers:
        layer.attn_norm = layer.ffn_norm = nn.Identity()
        # scores are divided by the root of d_H, which grows with d_p; compensate for it
        gain = GAIN * (SCALARS + VECTORS * d_p) ** 0.25
        layer.attn.qkv.weight.copy_(torch.cat([gain * matrix()[heads], gain * matrix()[heads], matrix()[heads]]))
        layer.attn.out.weight.copy_(matrix()[:, heads])
        layer.ffn_in.weight.copy_(with_numbers(layer.ffn_in.weight.shape))
        layer.ffn_in.bias.copy_(torch.randn(len(layer.ffn_in.bias), dtype=torch.float64) / 2)
        layer.ffn_out.weight[:numbers] = _normal(numbers, layer.ffn_out.weight.size(1))
    network.final_norm = nn.Identity()
    network.head.weight.copy_(with_numbers(network.head.weight.shape))


def _normal(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64) * columns**-0.5


@cache
def _packed(data: Path, name: str) -> PackedDataset:
    try:
        return PackedDataset.open(data / "packed" / name)
    except DatasetUnavailable:
        remedy = f"run `dvc repro download@{name}`"
        raise NoGraphs("not prepared", file=data / "packed" / name, remedy=remedy) from None
