"""Metrics by name, over all outputs of a part of a split. Values are fractions, or in the units of the target."""

import math
from collections.abc import Callable
from typing import Any

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

    For classes [N] and outputs [N, 2], that of the log-odds of class 1. For labels [N, T], the mean over columns.
    """
    from sklearn.metrics import roc_auc_score

    if _has_classes(output, target):
        return float(roc_auc_score(target.view(-1).cpu().numpy(), _log_odds(output)))
    return _mean_over_labels(roc_auc_score, output, target)


def average_precision(output: Tensor, target: Tensor) -> float:
    """Average precision.

    For classes [N] and outputs [N, 2], that of the log-odds of class 1, NaN if there is one class. For labels [N, T],
    the mean over columns as in ogb's evaluator: unlabelled entries and columns with one value are left out.
    """
    from sklearn.metrics import average_precision_score

    if _has_classes(output, target):
        if why_undefined("ap", target):  # scikit-learn returns 0 or 1
            return math.nan
        return float(average_precision_score(target.view(-1).cpu().numpy(), _log_odds(output)))
    return _mean_over_labels(average_precision_score, output, target)


def macro_f1(output: Tensor, target: Tensor) -> float:
    """Mean of the F1 scores of the classes, or of the label columns."""
    return _f1(output, target, "macro")


def micro_f1(output: Tensor, target: Tensor) -> float:
    """F1 score over the decisions of all classes or labels. It equals the accuracy if each row has one class."""
    return _f1(output, target, "micro")


def binary_f1(output: Tensor, target: Tensor) -> float:
    """F1 score of class 1 of two classes.

    Raises:
        ValueError: no example is of class 1, or there are more classes.
    """
    if reason := why_undefined("f1-binary", target):
        raise ValueError(f"f1-binary is undefined: the part {reason}")
    return _f1(output, target, "binary")


def mean_absolute_error(output: Tensor, target: Tensor) -> float:
    """Mean of |output - target| over all entries."""
    return (output.double() - target.view_as(output).double()).abs().mean().item()


def mean_squared_error(output: Tensor, target: Tensor) -> float:
    """Mean of (output - target)^2 over all entries."""
    return (output.double() - target.view_as(output).double()).square().mean().item()


def root_mean_squared_error(output: Tensor, target: Tensor) -> float:
    """Square root of the mean of (output - target)^2 over all entries."""
    return math.sqrt(mean_squared_error(output, target))


def r_squared(output: Tensor, target: Tensor) -> float:
    """Coefficient of determination R^2 of each column [N, T], averaged over the columns. NaN targets do not count.

    Raises:
        ValueError: a column has fewer than two different targets.
    """
    output, target = output.double().view(len(output), -1), target.double().view(len(output), -1)
    if reason := why_undefined("r2", target):
        raise ValueError(f"r2 is undefined: the part {reason}")
    known = ~target.isnan()
    mean = target.nansum(0) / known.sum(0)
    residual = torch.where(known, output - target, 0.0).square().sum(0)
    return (1 - residual / (target - mean).square().nansum(0)).mean().item()


def _has_classes(output: Tensor, target: Tensor) -> bool:
    """Returns whether targets are classes [N] or [N, 1] of outputs [N, 2], and not labels [N, T]."""
    return target.dim() == 1 or (target.size(1) == 1 and output.size(1) == 2)


def _log_odds(output: Tensor) -> np.ndarray:
    """Returns log(p_1 / p_0) of logits [N, 2]. Probabilities would be equal where they are close to 1."""
    logits = output.double()
    return (logits[:, 1] - logits[:, 0]).clamp(-1e300, 1e300).cpu().numpy()


def _f1(output: Tensor, target: Tensor, average: str) -> float:
    from sklearn.metrics import f1_score

    if target.dim() == 2 and target.shape == output.shape:  # labels, of which NaN is unknown
        known = ~target.isnan()
        columns: list[Any] = [slice(None)] if average == "micro" else list(range(target.size(1)))
        pairs = [(target[:, c][known[:, c]] > 0.5, output[:, c][known[:, c]] >= 0) for c in columns]
        return float(np.mean([f1_score(t.numpy(), o.numpy(), zero_division=0) for t, o in pairs if t.numel()]))
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
    "f1-binary": (binary_f1, "max"),
    "mae": (mean_absolute_error, "min"),
    "mse": (mean_squared_error, "min"),
    "rmse": (root_mean_squared_error, "min"),
    "r2": (r_squared, "max"),
}


def why_undefined(metric: str, target: Tensor) -> str | None:
    """Returns why a metric is undefined on the targets of a part, for example "has one class (0)", otherwise None."""
    columns = target.view(len(target), -1).T
    if metric == "f1-binary":
        return None if bool((target == 1).any()) else "has no example of class 1"
    if metric not in ("roc-auc", "ap", "r2"):
        return None
    values = [column[~column.isnan()].unique() for column in columns]
    if metric == "r2":
        constant = [number for number, known in enumerate(values, 1) if len(known) < 2]
        return f"has fewer than two different values of target {constant[0]}" if constant else None
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
