"""Higher-order Transformer (Kim et al. 2021): every equation as loops over pairs of stored tuples, in float64."""

import math

import torch
from torch import Tensor

from gt_models.released.hot import ReleasedAttention


def pattern_of(multi_index) -> tuple:
    """Equality pattern of a multi-index as a partition of its positions (Section 2)."""
    blocks: dict = {}
    for position, node in enumerate(multi_index):
        blocks.setdefault(node, []).append(position)
    return tuple(sorted(tuple(b) for b in blocks.values()))


def linear(
    values: Tensor, source: list[tuple], target: list[tuple], classes, weights, biases: dict, normalize: bool
) -> Tensor:
    """Eq. (1) / (15): classes (blocks) with their weights [in, out]; biases {pattern of j: [out]}."""
    k, rows = len(source[0]), []
    for j in target:
        out = biases[pattern_of(j)].clone()
        for blocks, weight in zip(classes, weights, strict=True):
            terms = [values[a] for a, i in enumerate(source) if _same_class(i, j, blocks)]
            if terms:
                out = out + sum(terms) / (len(terms) if normalize else 1) @ weight
        rows.append(out)
    assert k == len(source[0])
    return torch.stack(rows)


def attend(query_of, key_of, value_of, source: list[tuple], j: tuple, blocks, score, keys_of_class) -> Tensor | None:
    """One class at one output tuple: sum_i alpha_ij V_i, Z_j = sum_i sigma(Q_j, K_i) (Eq. 12)."""
    terms = [(score(query_of(j), key_of(i)), value_of(a)) for a, i in enumerate(source) if keys_of_class(i, j, blocks)]
    if not terms:
        return None
    z = sum(s for s, _ in terms)
    return sum(s * v for s, v in terms) / z


def softmax_score(q: Tensor, k: Tensor) -> Tensor:
    return torch.exp(q @ k / math.sqrt(len(q)))


def kernel_score(phi_query, phi_key):
    """Eq. (18)."""
    return lambda q, k: phi_query(q) @ phi_key(k)


def exact_keys(i: tuple, j: tuple, blocks) -> bool:
    """Whether (i, j) is in mu."""
    return _same_class(i, j, blocks)


def union_keys(i: tuple, j: tuple, blocks) -> bool:
    """Whether i is in the union over j' of {i | (i, j') in mu}, where j' equals j on nodes that mu shares (Eq. 21)."""
    k = len(i)
    inside = tuple(sorted(b for b in (tuple(p for p in block if p < k) for block in blocks) if b))
    return pattern_of(i) == inside and _shared_agree(i, j, blocks)


def union_keys_with_diagonal(i: tuple, j: tuple, blocks) -> bool:
    """The classes of the authors' kernel form: sums over row or column neighbours contain the diagonal entry."""
    k = len(i)
    shared = any(min(block) < k <= max(block) for block in blocks)
    inside = [b for b in (tuple(p for p in block if p < k) for block in blocks) if b]
    if shared and len(inside) == k > 1:
        return _shared_agree(i, j, blocks)
    return union_keys(i, j, blocks)


def _shared_agree(i: tuple, j: tuple, blocks) -> bool:
    both = (*i, *j)
    return all(len({both[p] for p in block}) == 1 for block in blocks if min(block) < len(i) <= max(block))


def _same_class(i: tuple, j: tuple, blocks) -> bool:
    return pattern_of((*i, *j)) == tuple(sorted(tuple(sorted(b)) for b in blocks))


def attention(module, values: Tensor, tuples: dict[int, list[tuple]], features=None) -> Tensor:
    """Attn_{k->l} (Eq. 10, 16, 17, 21) with the weights of a `HigherOrderAttention` of the paper or the released code.

    Args:
        tuples: stored tuples of one graph by order.
    """
    released = isinstance(module, ReleasedAttention)
    k, l, heads = module.k, module.l, module.num_heads
    slots: dict = {}  # (class, "q" | "k") -> {tuple of distinct nodes: [heads, head]}
    light = None
    for name, layer in module.maps.items():
        o = int(name)
        target = tuples[o]
        rows = run_linear(layer, values, tuples)
        column = 0
        for kind, classes in (("q", module.query_slots[o]), ("k", module.key_slots[o])):
            for c in classes:
                part = rows[:, column : column + module.qk_dim].reshape(len(target), heads, -1)
                slots[c, kind] = dict(zip(target, part, strict=True))
                column += module.qk_dim
        if o == l:
            light = rows[:, column:]
    out = light.clone()
    for row, j in enumerate(tuples[l]):
        joined = []
        for c in module.classes:
            s = module.value_order.index(c)
            part = slice(s * module.v_dim, (s + 1) * module.v_dim)
            v = (values @ module.value.weight[part].T + module.value.bias[part]).reshape(len(values), heads, -1)
            result = torch.zeros(heads, module.v_dim // heads, dtype=values.dtype)
            if pattern_of(j) == c.output_pattern:
                if module.attention == "kernel":
                    keys = union_keys_with_diagonal if released else union_keys
                    score = kernel_score(*features)
                else:
                    keys, score = exact_keys, softmax_score
                for h in range(heads):
                    q_nodes = tuple(j[block[0]] for block in c.output_pattern)
                    blocks = c.free if released else range(len(c.input_pattern))
                    found = attend(
                        lambda _, c=c, h=h, q_nodes=q_nodes: slots[c, "q"][q_nodes][h],
                        lambda i, c=c, h=h, blocks=blocks: slots[c, "k"][
                            tuple(i[c.input_pattern[b][0]] for b in blocks)
                        ][h],
                        lambda a, v=v, h=h: v[a, h],
                        tuples[k],
                        j,
                        c.blocks,
                        score,
                        keys,
                    )
                    if found is not None:
                        result[h] = found
            joined.append(result.flatten())
        if joined:
            out[row] = out[row] + torch.cat(joined) @ module.output.weight.T + module.output.bias
    return out


def run_linear(layer, values: Tensor, tuples: dict[int, list[tuple]]) -> Tensor:
    """`linear` with the weights of an `EquivariantLinear`."""
    weights = layer.weight.reshape(len(layer.classes), layer.in_dim, layer.out_dim)
    zero = torch.zeros(layer.out_dim, dtype=values.dtype)
    biases = {p: zero if layer.bias is None else layer.bias[a] for a, p in enumerate(layer.patterns)}
    return linear(
        values, tuples[layer.k], tuples[layer.l], [c.blocks for c in layer.classes], weights, biases, layer.normalize
    )


def generalized_features(projection: Tensor, eps: float = 1e-3):
    """Returns (phi of queries, phi of keys), with phi(u) = relu(c P u) + eps."""
    phi = lambda u: torch.relu(projection @ u * len(u) ** -0.25) + eps  # noqa: E731
    return phi, phi


def enc_layer(layer, values: Tensor, tuples: dict[int, list[tuple]], features=None, activation=torch.relu) -> Tensor:
    """Enc_{k->l} (Eq. 8, 9), pre-normalised."""
    a = attention(layer.attention, layer_norm(values, layer.attention_norm), tuples, features)
    hidden = activation(run_linear(layer.ffn_in, layer_norm(a, layer.ffn_norm), tuples))
    return a + run_linear(layer.ffn_out, hidden, tuples)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def layer_norm(x: Tensor, norm) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + norm.eps) * norm.weight + norm.bias


def tuples_of(support) -> dict[int, list[tuple]]:
    return {k: [tuple(row) for row in s.index.tolist()] for k, s in support.sets.items()}
