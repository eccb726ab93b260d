"""Several processes for one run (`processes:` of a recipe): which recipes and machines they fit. How they compute is in
gt_bench/training/ddp.py, who starts them in gt_bench/experiment/launch_ddp.py."""

from pathlib import Path

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError

# tasks of the common loop whose outputs are rows, graph after graph
TASKS = ("graph-classification", "graph-regression", "graph-multilabel", "set-to-graph")
FITTING = f"{', '.join(TASKS)}, node-classification on many graphs, and node-classification with subgraphs"


def check_processes(recipe: Recipe, task: str, split_kind: str, dataset: str, path: str | Path = "recipe") -> None:
    """Raises RecipeError where a step of the recipe on this dataset has no graphs that several processes could share."""
    if (
        recipe.processes == 1
        or task in TASKS
        or (task == "node-classification" and (split_kind == "graph" or recipe.subgraphs))
    ):
        return
    why = (
        "is one graph, which a step takes whole"
        if split_kind in ("node", "hyperedge")
        else f"({task}) does not go in parts by graph"
    )
    raise RecipeError(
        f"{path}: processes: {recipe.processes} share the graphs of a step, and {dataset!r} {why}; take it out. Tasks that fit: {FITTING}"
    )


def check_machine(recipe: Recipe, device: str, gpu: bool, path: str | Path = "recipe") -> None:
    """Raises RecipeError where runs take a GPU (`gpu`) and there is not one for each process. `device`: as in params.yaml."""
    if not gpu:
        return
    import torch

    count, wanted = torch.cuda.device_count(), recipe.processes
    if ":" in device:
        raise RecipeError(
            f"{path}: processes: {wanted} take a GPU each, and params.yaml names one: run.device: {device}; say cuda or auto there"
        )
    if count < wanted:
        raise RecipeError(
            f"{path}: processes: {wanted} take a GPU each, and this machine has {count}; set processes to {count} at most, or run.device to cpu in params.yaml"
        )
