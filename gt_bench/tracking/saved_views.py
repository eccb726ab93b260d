"""What MLflow's pages show first: named views of an experiment, kept as its tags, where MLflow's own "save view" puts them.

They are in the menu *Views* above the runs, and each has an address. MLflow 3 has no default view of an experiment that a server can set (a browser
remembers its own), so that `make ui` and the experiment's description give the addresses. One says `workflowType` too: without it MLflow shows the
side for language models until a person chooses the other.
"""

import json
from collections.abc import Sequence

PREFIX = "mlflow.sharedViewState."
SEARCH = "-search"  # ending of the experiments of searches
CURRENT = "tags.`gt.kind` = 'cell' and tags.`gt.current` = 'true'"
LEADERBOARD = (
    "tags.gt.dataset", "tags.gt.model", "metrics.result/test_mean", "metrics.result/test_std", "metrics.result/published_mean",
    "tags.gt.verdict", "metrics.cost/seconds", "metrics.cost/peak_memory_mib",
)  # fmt: skip
WIDE = {"gt.cell": 230, "gt.model": 150, "gt.verdict": 190}  # pixels, where the words are longer than the heading
ATTEMPTS = (
    "tags.gt.cell", "tags.gt.current", "metrics.result/test_mean", "metrics.result/test_std", "metrics.result/difference", "tags.gt.verdict",
    "tags.gt.commit", "params.optimizer.lr",
)  # fmt: skip


def views_of(experiment: str, params: Sequence[str], created: int) -> dict[str, str]:
    """The tags of an experiment that hold its views. `params`: of all its runs; `created`: of the experiment, in milliseconds."""
    if experiment.endswith(SEARCH):
        columns = ["tags.gt.cell", "metrics.result/validation", "tags.gt.state", *(f"params.{name}" for name in params)]
        complete = "tags.`gt.kind` = 'trial' and tags.`gt.state` = 'COMPLETE'"
        return {PREFIX + "trials": _named("Trials", created, _view(complete, columns, "metrics.`result/validation`"))}
    return {
        # the menu has the latest first
        PREFIX + "leaderboard": _named(
            "Leaderboard", created + 1, _view(CURRENT, LEADERBOARD, "tags.`gt.dataset`", ascending=True)
        ),
        PREFIX + "attempts": _named(
            "Every attempt", created, _view("tags.`gt.kind` = 'cell'", ATTEMPTS, "tags.`gt.cell`", ascending=True)
        ),
    }


def address_of(experiment_id: str, view: str, root: str = "") -> str:
    """Where MLflow shows the view; below `root`, the server."""
    return f"{root}#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={view}"


def first_view(experiment: str) -> str:
    """The view that an experiment opens with: of trials for a search, else the leaderboard."""
    return "trials" if experiment.endswith(SEARCH) else "leaderboard"


def described(experiment: str, experiment_id: str) -> str:
    """What stands above the runs of an experiment."""
    if experiment.endswith(SEARCH):
        return f"The searches of `{experiment.removesuffix(SEARCH)}`, a run per trial: [the complete ones]({address_of(experiment_id, 'trials')})"
    return (
        f"The cells of `{experiment}`: [the leaderboard]({address_of(experiment_id, 'leaderboard')}), "
        f"[every attempt, superseded ones too]({address_of(experiment_id, 'attempts')}). A mirror of `store/`: docs/mlflow.md"
    )


def _named(name: str, created: int, state: str) -> str:
    return json.dumps({"name": name, "createdAt": created, "updatedAt": created, "state": state})


def _view(where: str, columns: Sequence[str], order: str, ascending: bool = False) -> str:
    keys = [f"{kind}.`{name}`" for kind, _, name in (column.partition(".") for column in columns)]
    state = {
        "searchFilter": where, "orderByKey": order, "orderByAsc": ascending, "startTime": "ALL", "lifecycleFilter": "Active",
        "datasetsFilter": [], "modelVersionFilter": "All Runs", "selectedColumns": keys, "columnOrder": keys,
        "columnWidths": {key: WIDE.get(key.split("`")[1], max(105, 7 * len(key.split("`")[1]) + 26)) for key in keys}, "viewMaximized": True,
    }  # fmt: skip
    return json.dumps(state)
