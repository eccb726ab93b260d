"""Predictions of one run, given or drawn."""

import numpy as np
import torch

from gt_bench.store.predictions import Part, Predictions
from tests.gt_bench.cells import make_record


def predictions(output, target, seed=0, task="node-classification", ids=None, nodes=None) -> Predictions:
    """Predictions of the test part of one run."""
    part = Part(np.asarray(output), {"": np.asarray(target)}, {}, ids, nodes)
    record = make_record("small/web/mlp", seed)
    return Predictions(record, task, None, "node", {"test": part})


def drawn(seed: int, n: int = 40, noise: float = 1.0, classes: int = 3) -> Predictions:
    """Noisy logits of the same labels."""
    target = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(7))
    rng = torch.Generator().manual_seed(seed)
    output = torch.eye(classes)[target] + noise * torch.randn(n, classes, generator=rng)
    return predictions(output, target, seed, ids=np.arange(n))
