"""Outputs of runs: stored without changing a number, read again, carried by export and import, checked by digest."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.pack_predictions import pack
from gt_bench.provenance.transfer import file_problems, import_records, stored_problems
from gt_bench.records.run import StoredPredictions
from gt_bench.store import predictions
from gt_bench.store.predictions import FILE, PredictionsError, load
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import read
from tests.gt_bench.cells import changed, records
from tests.gt_bench.shipping import CELL, export, train
from tests.refusals import refused


def run_settings(project, **settings):
    """Runs of `small/web/mlp` under other settings of params.yaml."""
    project.recipe(run=settings)
    return train()


def files() -> list[Path]:
    return sorted(Path("store").glob(f"??/*/{FILE}"))


def test_the_recorded_metrics_follow_from_the_stored_outputs(project):
    project.recipe()
    train()
    for record in project.records():
        found, run = load(CELL, record, Store()), record.run
        assert found.score("accuracy") == run.test
        assert found.score("accuracy", "val") == run.val
        assert found.parts["test"].output.shape == (20, 3)
        assert found.level == "node"
        assert record.predictions.bytes == (Store().folder(record.digest) / FILE).stat().st_size


def test_rows_are_named_by_the_ids_of_the_split(project):
    from gt_bench.data.packed import PackedDataset

    project.recipe(batch={"graphs": 4, "bucket": True}, dataset="many", row="mlp")
    from gt_bench.pipeline.train import train_cell

    grid = load_grid()
    train_cell(grid.find("small/many/mlp"), grid)
    packed = PackedDataset.open(Path("data/packed/many"))
    part = load("small/many/mlp", project.records()[0], Store()).parts["test"]
    assert sorted(part.ids) == packed.split("test").tolist()
    assert list(part.ids) != sorted(part.ids)
    assert np.array_equal(part.labels.flatten(), packed.array("y")[torch.from_numpy(part.ids)].flatten())
    assert list(part.graph_sizes) == packed.sizes[torch.from_numpy(part.ids)].tolist()


def test_no_number_and_no_key_depends_on_them(project):
    run_settings(project)
    with_them = {record.digest: record.run for record in project.records()}
    shutil.rmtree("store")
    run_settings(project, predictions=0)
    without = {record.digest: record.run for record in project.records()}
    assert with_them == without
    assert not files()
    recipe = load_recipe(project.recipe(predictions=3.0))
    assert recipe.decisive() == load_recipe(project.recipe()).decisive()


def test_outputs_above_the_limit_are_left_out_and_the_error_names_the_limit_that_fits(project):
    run_settings(project, predictions=0.0001)
    record = project.records()[0]
    assert not files()
    with refused(PredictionsError, place=CELL, value=0) as error:
        load(CELL, record, Store())
    assert "`run.predictions: 1`" in error.value.remedy
    project.recipe(run={"predictions": 0.0001}, predictions=1.0)  # the recipe decides
    shutil.rmtree("store")
    train()
    assert len(files()) == 2


def test_a_run_without_them_is_computed_again_when_they_are_required(project):
    run_settings(project, predictions=0)
    before = {record.digest: record.run for record in project.records()}
    with refused(PredictionsError, place=CELL, value=0):
        load(CELL, project.records()[0], Store())
    run_settings(project)  # by default a stored record counts
    assert not files()
    run_settings(project, require_predictions=True)
    assert len(files()) == 2
    assert before == {r.digest: r.run for r in project.records()}


def test_outputs_of_other_numbers_than_the_record_are_refused(project):
    run_settings(project, predictions=0)
    path = next(Path("store").glob("??/*/record.json"))
    record = json.loads(path.read_text())
    record["deterministic"]["epochs"]["train_loss"][0] += 0.5
    del record["checksum"]
    path.write_text(json.dumps(record))
    with pytest.raises(RecipeError, match="the run has other numbers than its record"):
        run_settings(project, require_predictions=True)
    assert json.loads(path.read_text()) == record
    assert not (path.parent / FILE).exists()


def test_an_edited_file_is_reported_where_it_is_read_and_by_verify(project):
    project.recipe()
    train()
    record = project.records()[0]
    path = Store().folder(record.digest) / FILE
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with refused(PredictionsError, file=str(path)) as error:
        load(CELL, record, Store())
    assert "has the sha256" in error.value.problem
    assert stored_problems(Store())[0] == [
        f"{path}: has another sha256 than its record: it was edited or damaged; delete the file"
    ]
    path.unlink()
    assert stored_problems(Store())[0] == []
    with refused(PredictionsError, file=str(path), value=0):
        load(CELL, record, Store())


def test_export_and_import_carry_them(trained):
    path = export()
    outputs = predictions.shipped_file(path)
    assert outputs.name == "mlp.predictions.zip"
    assert 0 < outputs.stat().st_size < predictions.MAX_SHIPPED
    before, shipped = [one.read_bytes() for one in files()], read(path)
    shutil.rmtree("store")
    assert load(CELL, shipped.records[0], Store(), outputs).score("accuracy") == shipped.records[0].run.test
    assert import_records([shipped]) == (2, 0)
    assert [one.read_bytes() for one in files()] == before
    assert file_problems([shipped]) == {shipped.path: []}


def test_shipped_outputs_that_are_not_those_of_the_records_stop_an_import(trained):
    path = export()
    outputs, shipped = predictions.shipped_file(path), read(path)
    content = bytearray(outputs.read_bytes())
    content[200] ^= 1
    outputs.write_bytes(bytes(content))
    shutil.rmtree("store")
    from gt_bench.store.run_store import StoreError

    with refused(StoreError) as error:
        import_records([shipped])
    assert str(outputs) in error.value.problem
    assert not Path("store").exists()
    assert file_problems([shipped])[shipped.path]


def test_a_file_above_the_limit_is_not_shipped(trained, monkeypatch):
    outputs = predictions.shipped_file(export())
    assert outputs.exists()
    monkeypatch.setattr(predictions, "MAX_SHIPPED", 100)
    export()
    assert not outputs.exists()


def test_a_search_trial_stores_none(project):
    from gt_bench.config.cell_recipe import settings_of
    from gt_bench.experiment.cell import experiment_of

    project.recipe()
    grid = load_grid()
    cell = grid.find(CELL)
    record, _ = experiment_of(cell, settings_of(cell), grid, Store(), Path("data")).run(0, test=False)
    assert record.predictions == StoredPredictions()
    assert not files()


def test_targets_of_several_tensors_give_the_same_metrics(tmp_path):
    """Sets of different sizes: the metrics are computed per set, and batches matter."""
    from types import SimpleNamespace

    from gt_bench.tasks.registry import create_task
    from gt_bench.tasks.set_to_graph import Pairs

    rng = torch.Generator().manual_seed(0)
    sizes = [torch.tensor([3, 2]), torch.tensor([4])]
    outputs = [torch.randn(int((size**2).sum()), generator=rng) for size in sizes]
    targets = [Pairs((torch.rand(len(o), generator=rng) > 0.5).float(), s) for o, s in zip(outputs, sizes, strict=True)]
    loader = SimpleNamespace(order=lambda part: None)
    content = pack({"test": (outputs, targets)}, loader, "set-to-graph", None, "graph")
    record, store = records()[0], Store(tmp_path)
    record = changed(record, predictions=predictions.save(store.folder(record.digest), content).to_disk())
    found = load("a/b/c", record, store)
    expected = create_task("set-to-graph", "f1").evaluate(outputs, targets)["f1"]
    assert found.score("f1") == expected
    assert not np.isnan(expected)
    with refused(PredictionsError, value=["labels", "sizes"]):
        _ = found.parts["test"].labels
