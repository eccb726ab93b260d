"""GRIT's attention (Ma et al. 2023, Section 3.2, https://arxiv.org/abs/2305.17589; PPGT, Appendix D.1, Eq. 12).

Pairs take part and are updated.

    e_ij = relu(rho((q_i + k_j) * Ew_ij) + Eb_ij)     w_ij = softmax_j clamp(<u, e_ij>)     per head, over the nodes j
    of i's graph

rho is the signed square root; what node i receives is sum_j w_ij v_j and sum_j w_ij e_ij.
"""

import torch
from torch import Tensor

from gt_models.baselines.grit import signed_sqrt
from gt_models.batch import GraphBatch
from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.dropout import reference as drop
from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pair: Tensor,
    logit: Tensor,
    batch: GraphBatch,
    clamp: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """(sum_j w_ij v_j next to sum_j w_ij e_ij [N, H, 2, d], e [P, H, d]).

    Args:
        q: of all nodes, [N, H, d].
        k: of all nodes, [N, H, d].
        v: of all nodes, [N, H, d].
        pair: Ew and Eb over the flat pairs of the batch, P = sum n_b^2, query before key, [P, 2, H, d].
        logit: u, [H, d].
        batch: which nodes belong together.
        clamp: logits are cut to [-clamp, clamp]; math.inf: not.
        dropout: rate at which single weights are dropped; which ones is a hash of `seed`, the pair and the head.
        seed: long [1]; None drops nothing.
    """
    first, second = batch.pair_nodes  # queries, keys
    ew, eb = pair.unbind(1)  # [P, H, d] each
    e = torch.relu(signed_sqrt((q.index_select(0, first) + k.index_select(0, second)) * ew) + eb)  # [P, H, d]
    logits = (e * logit).sum(-1).clamp(-clamp, clamp)  # [P, H]
    weights = edge_softmax(logits, first, batch.num_nodes).to(v.dtype)  # [P, H]
    if seed is not None:
        weights = drop(weights, seed, dropout)
    received = torch.stack([v.index_select(0, second), e], 2) * weights[..., None, None]  # [P, H, 2, d]
    return sum_over_edges(received, first, batch.num_nodes), e


def _example(
    q: Tensor, k: Tensor, v: Tensor, pair: Tensor, logit: Tensor, batch: GraphBatch, *rest
) -> tuple[tuple, dict]:
    """Graphs of 5, 1 and 3 nodes."""
    small = GraphBatch(torch.zeros(9, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 5, 6, 9])).to(q.device)
    shapes = [(9, *q.shape[1:])] * 3 + [(small.num_pairs, *pair.shape[1:]), logit.shape]
    return (*(torch.randn(shape, dtype=q.dtype).to(q.device).requires_grad_() for shape in shapes), small, *rest), {}


def _numba():
    from gt_models.kernels.grit_attention_numba import grit_attention

    return grit_attention


grit_attention = Operation("grit_attention", reference, [Form("numba", _numba)], _example)
