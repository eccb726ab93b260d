"""Reference code of the set-to-graph evaluation: one set at a time, with loops, scikit-learn and networkx."""

import math

import networkx as nx
import numpy as np
from sklearn.metrics import accuracy_score, adjusted_rand_score, f1_score, precision_score, recall_score


def edge_scores(logits: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Edge metrics of one set: logits and truth [n, n]."""
    said = ((logits + logits.T) / 2 >= 0).astype(int).ravel()
    true = truth.astype(int).ravel()
    return {
        "accuracy": accuracy_score(true, said),
        "precision": precision_score(true, said, zero_division=0),
        "recall": recall_score(true, said, zero_division=0),
        "f1": f1_score(true, said, zero_division=0),
    }


def partition_scores(logits: np.ndarray, labels: list[int]) -> dict[str, float]:
    """Partition metrics of one set: logits [n, n], and the true group of each element."""
    n = len(labels)
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    for i in range(n):
        for j in range(n):
            if i != j and logits[i, j] + logits[j, i] >= 0:
                graph.add_edge(i, j)
    said = [0] * n
    for number, component in enumerate(nx.connected_components(graph)):
        for node in component:
            said[node] = number
    tp = fp = fn = right = 0
    for i in range(n):
        for j in range(i + 1, n):
            together, predicted = labels[i] == labels[j], said[i] == said[j]
            tp += together and predicted
            fp += predicted and not together
            fn += together and not predicted
            right += together == predicted
    precision = tp / (tp + fp) if tp + fp else 0
    recall = tp / (tp + fn) if tp + fn else 0
    return {
        "partition-f1": 2 * precision * recall / (precision + recall) if precision and recall else 0,
        "rand-index": right / (n * (n - 1) / 2) if n > 1 else 1,
        "adjusted-rand-index": adjusted_rand_score(labels, said),
    }


def bce(graphs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Mean over sets of the mean over entries of the binary cross entropy of symmetric logits."""
    means = []
    for logits, truth in graphs:
        terms = []
        for i in range(len(truth)):
            for j in range(len(truth)):
                p = 1 / (1 + math.exp(-(logits[i, j] + logits[j, i]) / 2))
                terms.append(-math.log(p) if truth[i, j] else -math.log(1 - p))
        means.append(sum(terms) / len(terms))
    return sum(means) / len(means)


def bce_f1(graphs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Mean over sets of their mean binary cross entropy minus the sum of soft F1.

    The entropy is 0 on the diagonal, which counts in the mean. The probability is 1 on the diagonal.
    """
    means, total = [], 0.0
    for logits, truth in graphs:
        terms, tp, fp, fn = [], 0.0, 0.0, 0.0
        for i in range(len(truth)):
            for j in range(len(truth)):
                p = 1.0 if i == j else 1 / (1 + math.exp(-logits[i, j]))
                terms.append(0.0 if i == j else -math.log(p) if truth[i, j] else -math.log(1 - p))
                tp, fp, fn = tp + p * truth[i, j], fp + p * (1 - truth[i, j]), fn + (1 - p) * truth[i, j]
        means.append(sum(terms) / len(terms))
        total += 2 * tp / (2 * tp + fp + fn)
    return sum(means) / len(means) - total
