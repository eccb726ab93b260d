"""The record of a run: what was used, and what did it take."""

import json

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.store.record_checks import record_problems
from tests.refusals import refused


def test_the_record_on_disk_is_the_one_that_run_returns(make):
    experiment = make(seeds=[3])
    record, _ = experiment.run(3)
    path = experiment.store.folder(record.digest) / "record.json"
    assert json.loads(path.read_text()) == record.to_disk()
    measured = record.measured
    assert measured.forms.keys() == {"training", "evaluation"}
    assert measured.arguments["hidden_dim"] == 8
    assert measured.code == experiment.code


def test_padded_batches_from_the_device_are_noted_in_the_record(project):
    """The settings of a recipe and of params.yaml reach the run; the record has what they did."""
    changes = {"model": {"name": "gin", "hidden_dim": 8, "num_layers": 1}, "seeds": [0], "epochs": 2}
    project.recipe("many", "gin", batch={"graphs": 4, "static": True}, run={"data_on": "device"}, **changes)
    grid = load_grid()
    assert train_cell(grid.find("small/many/gin"), grid).status == "ok"
    (record,) = project.records()
    assert not record_problems(record)
    noted = record.measured.static
    assert noted.mode is None
    assert noted.batches["padded"] >= 2 * 3 + 2 * 3
    assert record.run.recipe["batch"] == {"bucket": False, "graphs": 4, "static": True}
    project.recipe("web", "mlp", compile="default", batch={"parts": 2})
    grid = load_grid()
    with refused(RecipeError, place="compile", value="batch.parts"):
        train_cell(grid.find("small/web/mlp"), grid)
