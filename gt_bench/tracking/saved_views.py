"""Saved views of an experiment in the MLflow user interface, stored as tags of the experiment as MLflow does.

They are in the menu *Views* above the runs, and each has an address. In MLflow 3 a server cannot set the default view
of an experiment, so `make ui` and the description of the experiment contain the addresses. An address includes
`workflowType`: without it MLflow shows the view for language models until the user selects the other.
"""

import json
from collections.abc import Sequence

PREFIX = "mlflow.sharedViewState."
SEARCH = "-search"  # suffix of the experiments of searches
CURRENT = "tags.`gt.kind` = 'cell' and tags.`gt.current` = 'true'"
LEADERBOARD = (
    "tags.gt.dataset", "tags.gt.model", "metrics.result/test_mean", "metrics.result/test_std",
    "metrics.result/published_mean", "tags.gt.verdict", "metrics.cost/seconds", "metrics.cost/peak_memory_mib",
)  # fmt: skip
WIDE = {"gt.cell": 230, "gt.model": 150, "gt.verdict": 190}  # pixels, for columns with texts longer than the header
ATTEMPTS = (
    "tags.gt.cell", "tags.gt.current", "metrics.result/test_mean", "metrics.result/test_std",
    "metrics.result/difference", "tags.gt.verdict", "tags.gt.commit", "params.optimizer.lr",
)  # fmt: skip


def views_of(experiment: str, params: Sequence[str], created: int) -> dict[str, str]:
    """Return the tags of an experiment with its views.

    Args:
        experiment: name.
        params: names of the parameters of all its runs.
        created: time of its creation, in milliseconds since 1970.
    """
    if experiment.endswith(SEARCH):
        columns = ["tags.gt.cell", "metrics.result/validation", "tags.gt.state", *(f"params.{name}" for name in params)]
        complete = "tags.`gt.kind` = 'trial' and tags.`gt.state` = 'COMPLETE'"
        return {PREFIX + "trials": _named("Trials", created, _view(complete, columns, "metrics.`result/validation`"))}
    return {
        # the menu shows the latest first
        PREFIX + "leaderboard": _named(
            "Leaderboard", created + 1, _view(CURRENT, LEADERBOARD, "tags.`gt.dataset`", ascending=True)
        ),
        PREFIX + "attempts": _named(
            "Every attempt", created, _view("tags.`gt.kind` = 'cell'", ATTEMPTS, "tags.`gt.cell`", ascending=True)
        ),
    }


def address_of(experiment_id: str, view: str, root: str = "") -> str:
    """Return the address of a view below the server `root`."""
    return f"{root}#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={view}"


def first_view(experiment: str) -> str:
    """Return the main view of an experiment: "trials" for a search, else "leaderboard"."""
    return "trials" if experiment.endswith(SEARCH) else "leaderboard"


def described(experiment: str, experiment_id: str) -> str:
    """Return the description of an experiment, which MLflow shows above its runs."""
    if experiment.endswith(SEARCH):
        suite, trials = experiment.removesuffix(SEARCH), address_of(experiment_id, "trials")
        return f"Searches of `{suite}`, one run per trial: [complete trials]({trials})"
    return (
        f"Cells of `{experiment}`: [leaderboard]({address_of(experiment_id, 'leaderboard')}), "
        f"[all attempts, also superseded ones]({address_of(experiment_id, 'attempts')}). "
        "A mirror of `store/`, see docs/mlflow.md"
    )


def _named(name: str, created: int, state: str) -> str:
    return json.dumps({"name": name, "createdAt": created, "updatedAt": created, "state": state})


def _view(where: str, columns: Sequence[str], order: str, ascending: bool = False) -> str:
    parts = [column.partition(".") for column in columns]
    keys = [f"{kind}.`{name}`" for kind, _, name in parts]
    widths = [WIDE.get(name, max(105, 7 * len(name) + 26)) for _, _, name in parts]  # pixels
    state = {
        "searchFilter": where, "orderByKey": order, "orderByAsc": ascending, "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [], "modelVersionFilter": "All Runs", "selectedColumns": keys, "columnOrder": keys,
        "columnWidths": dict(zip(keys, widths, strict=True)), "viewMaximized": True,
    }  # fmt: skip
    return json.dumps(state)
