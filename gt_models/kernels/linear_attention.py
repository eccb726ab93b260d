"""Kernel attention over all nodes of a graph, y_i = sum_j <q_i, k_j> v_j / sum_j <q_i, k_j>.

Orders of summation other than one padded product. Polynormer, Deng et al. 2024, equation 6,
https://arxiv.org/abs/2403.01232.

Queries and keys are non-negative feature maps. All tensors are [N, H, C], with one graph after the other. Time O(N C^2
H).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 1024  # nodes


def in_chunks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One graph. Every sum over nodes, also in the backward pass, is a batch of products over chunks of nodes.

    A single product of C x C numbers that is as long as a large graph leaves most of a GPU idle.
    """
    n = len(key)
    denominator = (query * key.sum(0)).sum(-1, keepdim=True)  # [N, H, 1]
    # [chunks, CHUNK, H, C], zeros behind the last node
    query, key, value = (F.pad(t, (0, 0, 0, 0, 0, -n % CHUNK)).unflatten(0, (-1, CHUNK)) for t in (query, key, value))
    memory = torch.einsum("kmhc,kmhd->khcd", key, value).sum(0, keepdim=True).expand(len(key), -1, -1, -1)
    return torch.einsum("kmhc,khcd->kmhd", query, memory).flatten(0, 1)[:n] / denominator
