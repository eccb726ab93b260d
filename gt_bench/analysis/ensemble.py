"""Ensembles of the trials of a search: greedy selection on validation predictions (Caruana et al., 2004).

As in TabArena (Erickson et al., 2025): starting from nothing, the candidate whose addition gives the best validation
metric is added, with replacement, `ROUNDS` times. The ensemble is the best one on the way, and the smallest of equal
ones. Predictions are averaged as probabilities for classes and labels, as outputs otherwise. The test part is read
once, when the weights are fixed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gt_bench.config.schema import RecipeError
from gt_bench.store.predictions import Predictions

ROUNDS = 40


@dataclass(frozen=True)
class Ensemble:
    """An ensemble for one seed.

    Attributes:
        weights: {name of a candidate: its weight}; weights are positive and add up to 1.
        validation: metric of the ensemble on validation.
        test: metric of the ensemble on test.
    """

    weights: Mapping[str, float]
    validation: float
    test: float


def select(candidates: Mapping[str, Predictions]) -> Ensemble:
    """Chooses the weights of candidates on validation, and evaluates the ensemble on test.

    Args:
        candidates: {name: predictions of a run}, all with the same seed and split. Among equal additions the first one
            is chosen.

    Raises:
        RecipeError: the runs have different examples, or the metric is undefined on validation.
    """
    names, runs = list(candidates), list(candidates.values())
    run = runs[0].record.run
    task, metric = runs[0].create_task(run.metric), run.metric
    sign = 1.0 if run.direction == "max" else -1.0

    def score(part: str, shares: Tensor, counts: Sequence[int]) -> float:
        """Returns the metric of the mean of `shares`, [M, N, ...], weighted by `counts`, [M]."""
        weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        mean = outputs_of(runs[0].task, torch.tensordot(weights, shares, dims=1))
        return task.evaluate([mean], [torch.from_numpy(runs[0].parts[part].labels)])[metric]

    shares = {}
    for part in ("val", "test"):
        if (of_part := shares_of(runs, part)) is None:
            problem = f"an ensemble needs runs with the same {part} examples; these differ"
            raise RecipeError(problem, value=part, remedy="retrain the cell")
        shares[part] = of_part
    counts, best, best_counts = [0] * len(runs), -math.inf, [0] * len(runs)
    for _ in range(ROUNDS):
        scored = []
        for i in range(len(runs)):
            more = [count + (i == j) for j, count in enumerate(counts)]
            try:
                value = sign * score("val", shares["val"], more)
            except ValueError as error:
                problem = f"an ensemble cannot be chosen: {metric} on validation: {error}"
                raise RecipeError(problem, value=metric) from None
            scored.append((-math.inf if math.isnan(value) else value, -i, more))
        value, _, counts = max(scored)
        if value > best:
            best, best_counts = value, counts
    if best == -math.inf:
        problem = f"an ensemble cannot be chosen: {metric} is not a number on validation for any candidate"
        raise RecipeError(problem, value=metric)
    weights = {name: count / sum(best_counts) for name, count in zip(names, best_counts, strict=True) if count}
    return Ensemble(weights, sign * best, score("test", shares["test"], best_counts))


def of_seeds(predictions: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> dict[str, float]:
    """Metrics of the mean of the seeds' predictions: of probabilities for classes and labels, of outputs otherwise.

    Raises:
        RecipeError: the seeds have different examples, or an example has no row of its own.
    """
    shares = shares_of(predictions, part)
    if shares is None:
        problem = f"the seeds of this cell have different {part} examples (a split per seed)"
        raise RecipeError(f"{problem}: their predictions cannot be averaged", place="--ensemble")
    mean, labels = outputs_of(predictions[0].task, shares.mean(0)), torch.from_numpy(predictions[0].parts[part].labels)
    return {m: predictions[0].create_task(m).evaluate([mean], [labels])[m] for m in metrics}


def shares_of(runs: Sequence[Predictions], part: str) -> Tensor | None:
    """Returns what an ensemble averages: probabilities for classes and labels, outputs otherwise.

    Args:
        runs: M runs of a task.
        part: val or test.

    Returns:
        float64 [M, N, ...], in the order of the first run. None if the runs have different examples.
    """
    rows = [runs[0].parts[part].rows_of(run.parts[part]) for run in runs]
    if any(of is None for of in rows):
        return None
    arrays = [run.parts[part].output[of] for run, of in zip(runs, rows, strict=True)]
    outputs = torch.from_numpy(np.stack(arrays)).double()
    if runs[0].task.endswith("classification"):
        return outputs.softmax(-1)
    return outputs.sigmoid() if runs[0].task.endswith("multilabel") else outputs


def outputs_of(task: str, mean: Tensor) -> Tensor:
    """Returns averaged `shares_of` as outputs of a model, which the metrics of a task read."""
    if task.endswith("classification"):
        return mean.log()
    # finite for a probability of 0 or 1
    return mean.logit().clamp(-1e3, 1e3) if task.endswith("multilabel") else mean
