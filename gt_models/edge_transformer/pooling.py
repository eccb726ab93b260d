"""Nodes to graphs, with the set2set pooling of the runs on QM9."""

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.nn.pooling import pool


class GraphPooling(nn.Module):
    """Nodes to graphs: "sum" or "mean" [N, d] -> [B, d], "set2set" (Vinyals et al. 2016) [N, d] -> [B, 2d]."""

    def __init__(self, hidden_dim: int, how: str, steps: int = 6):
        super().__init__()
        if how not in ("sum", "mean", "set2set"):
            raise ValueError(f"unknown pooling {how!r}; known: sum, mean, set2set")
        self.how, self.steps = how, steps
        # unstated: six steps; from the authors' code
        self.lstm = nn.LSTMCell(2 * hidden_dim, hidden_dim) if how == "set2set" else None

    def reset_parameters(self) -> None:
        if self.lstm is not None:
            self.lstm.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [B, d], with set2set [B, 2d]."""
        if self.lstm is None:
            return pool(x, batch, self.how)
        nodes, mask = batch.to_dense(x), batch.node_mask  # [B, n, d], [B, n]
        q = x.new_zeros(batch.num_graphs, 2 * x.size(1))  # [B, 2d]
        h, c = q[:, : x.size(1)], q[:, : x.size(1)]  # [B, d]
        for _ in range(self.steps):
            h, c = self.lstm(q, (h, c))
            scores = torch.einsum("bnd,bd->bn", nodes, h).masked_fill(~mask, torch.finfo(x.dtype).min / 4)
            q = torch.cat([h, torch.einsum("bn,bnd->bd", scores.softmax(1) * mask, nodes)], 1)
        return q
