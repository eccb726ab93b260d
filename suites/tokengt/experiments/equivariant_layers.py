"""TokenGT, Theorems 1 and 2: are Transformer layers with the weights of the proofs equivariant linear layers?

A layer should be an equivariant linear layer L_{2 -> 2}, and T layers a 2-IGN. As published: tokens are all ordered
pairs, P has orthonormal rows, queries and keys are those of Lemma 1's proof with sharpness a, without layer norm. The
layers are those of the library (`EncoderLayer`), without norms. The proof uses universal approximation for the MLP.
Here its weights are given explicitly: relu(z) is gelu(c z) / c, and a unit for tokens of one type has relu(z - M) for
tokens of the others. As in the proof, weights are for one n, because the MLP multiplies by the number of keys, which
depends on n. The last case applies weights to a graph with another n.
"""

# mypy: disable-error-code="assignment, misc"

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gt_models.layers.equivariant_basis import equality_pattern, equivariant_basis, pair_indices, set_partitions
from gt_models.layers.transformer import EncoderLayer, Packing

LAYERS = {"one layer": 1, "2-IGN of 2 layers": 2, "2-IGN of 3 layers": 3}
SIZES = (2, 3, 4, 5)
OTHER_N = "one layer, weights of n = 4, n = 5"
CASES = [*(f"{name}, n = {n}" for name in LAYERS for n in SIZES), OTHER_N]
QUICK = ["one layer, n = 2", "one layer, n = 4", "2-IGN of 2 layers, n = 3", OTHER_N]
SHARPNESS = (
    2.0,
    5.0,
    10.0,
    20.0,
    40.0,
)  # a / sqrt(d_H): smallest difference of the scores of two tokens, before the softmax
WIDTH, TYPES, HEADS = 3, 2, 15  # d of the features, d_e, bell(4)
STEEP, GATE = 2.0**30, 1e3  # c and M
# the last digits are rounding
ROUNDING, TOLERANCE = ("rounding",), 0.01


@dataclass(frozen=True)
class Linear:
    """Parameters of a layer L_{2 -> 2}.

    Attributes:
        weight: w_mu, [15, d, d], in the order of `set_partitions`.
        bias: b_lambda, [2, d].
    """

    weight: Tensor
    bias: Tensor


def compute(case: str, data: Path) -> dict[str, list[float] | float]:
    """Compares Transformer layers with equivariant layers.

    Returns:
        `error`: largest difference, divided by the largest output, for each SHARPNESS except the last. `rounding`: that
            of the last.
    """
    made_for = 4 if case == OTHER_N else int(case.rpartition(" ")[2])
    n, depth = int(case.rpartition(" ")[2]), LAYERS[case.split(",")[0]]
    rng = torch.Generator().manual_seed(0)
    layers = [_drawn(rng) for _ in range(depth)]
    x = torch.randn(n * n, WIDTH, generator=rng, dtype=torch.float64)
    identifiers = torch.linalg.qr(torch.randn(n, n, generator=rng, dtype=torch.float64))[0]
    invariant = torch.randn(TYPES * WIDTH, WIDTH, generator=rng, dtype=torch.float64)  # w_a of L_{2 -> 0}
    if depth == 1:
        wanted = equivariant(x, layers[0], n)
        found = [transformer(x, identifiers, layers, made_for, sharp)[:, :WIDTH] for sharp in SHARPNESS]
    else:
        wanted = ign(x, layers, n) @ invariant
        found = [
            transformer(x, identifiers, layers, made_for, sharp, pooled=True).sum(0)[reserved(n)] @ invariant
            for sharp in SHARPNESS
        ]
    errors = [((out - wanted).abs().max() / wanted.abs().max()).item() for out in found]
    return {"error": errors[:-1], "rounding": errors[-1]}


def equivariant(x: Tensor, layer: Linear, n: int) -> Tensor:
    """Returns the output [n^2, d] of a layer by Definition 2 and the basis tensors, for x [n^2, d]."""
    pairs = pair_indices(n)
    basis = equivariant_basis(pairs, pairs, torch.float64)  # [15, n^2, n^2]
    return torch.einsum("mij,jc,mcd->id", basis, x, layer.weight) + layer.bias[equality_pattern(pairs)]


def ign(x: Tensor, layers: list[Linear], n: int) -> Tensor:
    """Returns the sums over the pairs of each class of L^(T) relu ... relu L^(1) x, [2 d].

    Any L_{2 -> 0} and the MLP after it are functions of them.
    """
    for layer in layers[:-1]:
        x = equivariant(x, layer, n).relu()
    x = equivariant(x, layers[-1], n)
    kind = equality_pattern(pair_indices(n))
    return torch.cat([x[kind == a].sum(0) for a in range(TYPES)])


def reserved(n: int) -> slice:
    """Returns the channels that the last layer of a 2-IGN writes to."""
    return slice(_spare(n), _spare(n) + TYPES * WIDTH)


def transformer(
    x: Tensor, identifiers: Tensor, layers: list[Linear], n: int, sharp: float, pooled: bool = False
) -> Tensor:
    """Returns the tokens of the Transformer, [len(identifiers)^2, d_T].

    Args:
        x: features of pairs, [len(identifiers)^2, d].
        identifiers: node identifiers with orthonormal rows.
        layers: equivariant layers.
        n: the weights are for graphs of n nodes.
        sharp: sharpness.
        pooled: whether the last layer writes to the channels of each class (Theorem 2).
    """
    d_p = identifiers.size(1)
    pairs = pair_indices(len(identifiers))
    kinds = _types()[equality_pattern(pairs)]
    given = torch.cat([x, identifiers[pairs[:, 0]], identifiers[pairs[:, 1]], kinds], 1)  # X^in
    tokens = nn.functional.pad(given, (0, HEADS * _head_dim(d_p) - given.size(1)))
    packing = Packing.of(torch.tensor([len(tokens)]))
    for number, layer in enumerate(layers, 1):
        last = number == len(layers)
        end = "classes" if pooled and last else "relu" if not last else "linear"
        tokens = encoder_layer(layer, n, d_p, sharp, end)(tokens, packing)
    return tokens


def encoder_layer(layer: Linear, n: int, d_p: int, sharp: float, end: str) -> EncoderLayer:
    """Returns TokenGT's layer with the weights of the proof, for graphs of n nodes.

    Args:
        layer: equivariant layer L.
        n: number of nodes.
        d_p: width of node identifiers.
        sharp: sharpness.
        end: "linear" gives L(X), "relu" relu(L(X)), "classes" L(X) by class.
    """
    head_dim, spare = _head_dim(d_p), _spare(d_p)
    found = EncoderLayer(HEADS * head_dim, HEADS, 2 * (TYPES * WIDTH + spare + HEADS * WIDTH)).double()
    found.attn_norm, found.ffn_norm = nn.Identity(), nn.Identity()
    found.requires_grad_(False)
    for parameter in found.parameters():
        parameter.zero_()
    root = (sharp * head_dim**0.5) ** 0.5  # sqrt(a)
    size = HEADS * head_dim
    query, key, value = (found.attn.qkv.weight[i * size : (i + 1) * size] for i in range(3))
    query_bias, key_bias, _ = (found.attn.qkv.bias[i * size : (i + 1) * size] for i in range(3))
    unit = root * torch.eye(d_p, dtype=torch.float64)
    nodes, kind = (
        [slice(WIDTH + s * d_p, WIDTH + (s + 1) * d_p) for s in range(2)],
        slice(WIDTH + 2 * d_p, WIDTH + 2 * d_p + TYPES),
    )
    for h, pattern in enumerate(set_partitions(4)):
        first = h * head_dim
        for s in range(2):
            for r in range(2):
                at = slice(first + (2 * s + r) * d_p, first + (2 * s + r + 1) * d_p)
                query[at, nodes[s]] = unit if pattern[s] == pattern[2 + r] else -unit
                key[at, nodes[r]] = unit
        of_query, of_key = (slice(first + 4 * d_p + i * TYPES, first + 4 * d_p + (i + 1) * TYPES) for i in range(2))
        same = root * torch.eye(TYPES, dtype=torch.float64)
        query[of_query, kind], key[of_key, kind] = same, same
        query_bias[of_key], key_bias[of_query] = (
            root * _types()[_kind(pattern[2:])],
            root * _types()[_kind(pattern[:2])],
        )
        value[first : first + WIDTH, :WIDTH] = torch.eye(WIDTH, dtype=torch.float64)
        found.attn.out.weight[spare + h * WIDTH : spare + (h + 1) * WIDTH, first : first + WIDTH] = layer.weight[h].T
    _write_mlp(found, layer, n, d_p, end)
    return found


def _write_mlp(found: EncoderLayer, layer: Linear, n: int, d_p: int, end: str) -> None:
    """Writes the MLP f of the proofs: -X + sum_h g_h S^h + b for the tokens of each class, and -S.

    f' of Theorem 2 also clears the other channels.
    """
    spare, kind = _spare(d_p), slice(WIDTH + 2 * d_p, WIDTH + 2 * d_p + TYPES)
    read, bias, write, unit = found.ffn_in.weight, found.ffn_in.bias, found.ffn_out.weight, 0
    keys = equivariant_basis(pair_indices(n), pair_indices(n), torch.float64).sum(-1)  # [15, n^2]: g
    for a in range(TYPES):
        of_class = keys[:, equality_pattern(pair_indices(n)) == a]
        count = of_class[:, 0] if of_class.size(1) else torch.zeros(HEADS, dtype=torch.float64)
        for channel in range(WIDTH):
            for sign in (1,) if end == "relu" else (1, -1):
                read[unit, spare + channel : spare + HEADS * WIDTH : WIDTH] = sign * count
                # minus M for tokens of another class: (1 - <E, E^a>) / 2 is 1 for them and 0 for this class
                read[unit, kind] = GATE / 2 * _types()[a]
                bias[unit] = sign * layer.bias[a, channel] - GATE / 2
                write[(spare + a * WIDTH if end == "classes" else 0) + channel, unit] = sign
                unit += 1
    cleared = (
        range(spare + HEADS * WIDTH) if end == "classes" else [*range(WIDTH), *range(spare, spare + HEADS * WIDTH)]
    )
    for channel in cleared:
        for sign in (1, -1):
            read[unit, channel], write[channel, unit] = sign, -sign
            unit += 1
    read *= STEEP
    bias *= STEEP
    write /= STEEP


def _types() -> Tensor:
    """Returns type identifiers, equally spaced on a circle."""
    return torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)


def _kind(pattern: tuple[int, ...]) -> int:
    return int(equality_pattern(torch.tensor(pattern)))


def _head_dim(d_p: int) -> int:
    return 4 * d_p + 2 * TYPES


def _spare(d_p: int) -> int:
    """Returns the first channel after X^in."""
    return WIDTH + 2 * d_p + TYPES


def _drawn(rng: torch.Generator) -> Linear:
    weight = torch.randn(HEADS, WIDTH, WIDTH, generator=rng, dtype=torch.float64) / (HEADS * WIDTH) ** 0.5
    return Linear(weight, torch.randn(TYPES, WIDTH, generator=rng, dtype=torch.float64))
