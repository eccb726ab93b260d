"""Metrics by name, over all outputs of a part of a split. Values are fractions, or in the units of the target."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def accuracy(output: Tensor, target: Tensor) -> float:
    """Fraction of rows of the outputs [N, C] whose largest entry is the class in [N]."""
    return (output.argmax(-1) == target.view(-1)).double().mean().item()


def balanced_accuracy(output: Tensor, target: Tensor) -> float:
    """Mean of the accuracies of the classes that occur: the weighted accuracy of PATTERN and CLUSTER."""
    from sklearn.metrics import balanced_accuracy_score

    return float(balanced_accuracy_score(target.view(-1).cpu().numpy(), output.argmax(-1).cpu().numpy()))


def roc_auc(output: Tensor, target: Tensor) -> float:
    """Area under the ROC curve.

    For classes [N] and outputs [N, 2], that of the probability of class 1. For labels [N, T], the mean over columns.
    """
    from sklearn.metrics import roc_auc_score

    if target.dim() == 1 or (target.size(1) == 1 and output.size(1) == 2):
        return float(roc_auc_score(target.view(-1).cpu().numpy(), output.double().softmax(-1)[:, 1].cpu().numpy()))
    return _mean_over_labels(roc_auc_score, output, target)


def average_precision(output: Tensor, target: Tensor) -> float:
    """Mean average precision over label columns [N, T], as in ogb's evaluator.

    Unlabelled entries and columns with one value are left out.
    """
    from sklearn.metrics import average_precision_score

    return _mean_over_labels(average_precision_score, output, target)


def macro_f1(output: Tensor, target: Tensor) -> float:
    """Mean of the F1 scores of the classes."""
    return _f1(output, target, "macro")


def micro_f1(output: Tensor, target: Tensor) -> float:
    """F1 score over the decisions of all classes. It equals the accuracy if each row has one class."""
    return _f1(output, target, "micro")


def mean_absolute_error(output: Tensor, target: Tensor) -> float:
    """Mean of |output - target| over all entries."""
    return (output.double() - target.view_as(output).double()).abs().mean().item()


def mean_squared_error(output: Tensor, target: Tensor) -> float:
    """Mean of (output - target)^2 over all entries."""
    return (output.double() - target.view_as(output).double()).square().mean().item()


def _f1(output: Tensor, target: Tensor, average: str) -> float:
    from sklearn.metrics import f1_score

    return float(
        f1_score(target.view(-1).cpu().numpy(), output.argmax(-1).cpu().numpy(), average=average, zero_division=0)
    )


def _mean_over_labels(score: Callable[..., float], output: Tensor, target: Tensor) -> float:
    outputs, targets = output.double().cpu().numpy(), target.view(output.shape).double().cpu().numpy()
    values = []
    for column in range(targets.shape[1]):
        known = ~np.isnan(targets[:, column])
        if np.unique(targets[known, column]).size > 1:
            values.append(score(targets[known, column], outputs[known, column]))
    if not values:
        raise ValueError("no label column contains both classes in this split: the metric is undefined")
    return float(np.mean(values))


# name -> (function, direction)
METRICS: dict[str, tuple[Callable[[Tensor, Tensor], float], str]] = {
    "accuracy": (accuracy, "max"),
    "balanced-accuracy": (balanced_accuracy, "max"),
    "roc-auc": (roc_auc, "max"),
    "ap": (average_precision, "max"),
    "f1-macro": (macro_f1, "max"),
    "f1-micro": (micro_f1, "max"),
    "mae": (mean_absolute_error, "min"),
    "mse": (mean_squared_error, "min"),
}


def why_undefined(metric: str, target: Tensor) -> str | None:
    """Returns why a metric is undefined on the targets of a part, for example "has one class (0)", otherwise None."""
    if metric not in ("roc-auc", "ap"):
        return None
    columns = target.view(len(target), -1).T
    values = [column[~column.isnan()].unique() for column in columns]
    if any(len(known) > 1 for known in values):
        return None
    if len(values) > 1:
        return f"has one value of each of its {len(values)} labels"
    return f"has one class ({values[0][0]:g})" if len(values[0]) else "has no label"


def detached(tensors: list[Tensor]) -> Tensor:
    """Concatenates outputs of several batches on the CPU, as float32 or float64."""
    return torch.cat(
        [
            t.detach().float().cpu() if t.is_floating_point() and t.dtype != torch.float64 else t.detach().cpu()
            for t in tensors
        ]
    )
