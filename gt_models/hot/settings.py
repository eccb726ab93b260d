"""The paper, and which settings of a higher-order Transformer there are."""

from typing import Final

PAPER = (
    "Kim, Oh, Hong: Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs, NeurIPS 2021. "
    "https://arxiv.org/abs/2110.14416"
)
LEVELS: Final = ("graph", "node", "pair", "hyperedge")
COST = "m d^2 (S, phi); m^2 d (S); n^2 d^2 (D, phi); n^4 d (D)"


def orders(level: str, input_order: int | None, hyperedge_order: int) -> tuple[int, int]:
    """k and l. Raises ValueError where there is no such level, or its tuples are not those of the input."""
    if level not in LEVELS:
        raise ValueError(f"unknown level {level!r}; known: {', '.join(LEVELS)}")
    if level == "hyperedge" and hyperedge_order < 2:
        raise ValueError(f"hyperedge_order {hyperedge_order}: a hyperedge has two nodes or more")
    k = (2 if level in ("graph", "node") else 1) if input_order is None else input_order
    l = {"graph": 0, "node": 1, "pair": 2, "hyperedge": hyperedge_order}[level]
    if level == "hyperedge" and k == l:
        raise ValueError("hyperedges of two nodes need input_order=1 (their pairs are not the graph's edges)")
    return k, l


def check_forms(form: str, kernel: str) -> None:
    """Raises ValueError for a form of the support or a kernel that there is not."""
    if form not in ("sparse", "dense") or kernel not in ("softmax", "generalized"):
        raise ValueError(f"form {form!r} (sparse or dense) or kernel {kernel!r} (softmax or generalized) is unknown")


def check_attention(qk_dim: int, v_dim: int, num_heads: int, attention: str) -> None:
    """Raises ValueError for settings that cannot be, saying what can."""
    for name, width in (("qk_dim", qk_dim), ("v_dim", v_dim)):
        if num_heads < 1 or width % num_heads:
            raise ValueError(f"{name} {width} does not split into {num_heads} heads: make it a multiple of num_heads")
    if attention not in ("softmax", "kernel"):
        raise ValueError(f"unknown attention {attention!r}; known: softmax, kernel")
