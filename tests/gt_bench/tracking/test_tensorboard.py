"""TensorBoard has the curves of the records, whatever was logged before."""

from pathlib import Path

import numpy as np
import pytest

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.tracking.payload import run_metrics
from gt_bench.tracking.tensorboard import TensorBoard
from tests.gt_bench.cells import ET, make_record, make_result
from tests.gt_bench.tracking.conftest import train

CELL = "small/web/mlp"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install tensorboard")
    monkeypatch.chdir(tmp_path)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads from a folder: name -> [(step, value)]."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={SCALARS: 0})
    reader.Reload()
    return {name: [(e.step, e.value) for e in reader.Scalars(name)] for name in reader.Tags()["scalars"]}


def assert_mirrors(record: dict, cell: str = CELL) -> None:
    found = scalars(Path("tensorboard", cell, f"seed-{record.run.seed}"))
    expected = {
        name: [(step, float(np.float32(value))) for step, value in points]
        for name, points in run_metrics(record).items()
    }
    assert found == expected
    curves = record.run.epochs
    assert found["curve/train_loss"] == list(zip(curves["epoch"], np.float32(curves["train_loss"]).tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 2])
def test_tensorboard_reads_the_curves_of_the_records(project, capfd, parallel):
    project.recipe(run={"tracking": ["tensorboard"], "parallel": parallel})
    grid = load_grid()
    train_cell(grid.find(CELL), grid)
    assert len(project.records()) == 2
    assert "warning" not in capfd.readouterr().err
    for record in project.records():
        assert_mirrors(record)
    # an unchanged cell writes nothing; without its folder it is written from the store
    before = {path: path.stat().st_mtime_ns for path in Path("tensorboard").rglob("*")}
    train_cell(grid.find(CELL), grid)
    assert {path: path.stat().st_mtime_ns for path in Path("tensorboard").rglob("*")} == before
    for path in (*Path("tensorboard").rglob("*.tfevents.*"), *Path("tensorboard").rglob("complete.*")):
        path.unlink()
    train_cell(grid.find(CELL), grid)
    for record in project.records():
        assert_mirrors(record)


def test_a_run_that_resumes_and_one_that_is_replaced_leave_only_their_own_curves():
    first, second = make_record(ET, 0, test=0.6), make_record(ET, 0, test=0.7)
    killed = TensorBoard(ET)
    train(killed, first, range(1, 9))
    killed._close_writer(first.digest)
    resumed = TensorBoard(ET)
    train(resumed, first, range(6, 13))  # from the last checkpoint
    live = scalars(Path("tensorboard", ET, "seed-0"))["curve/train_loss"]
    assert [step for step, _ in live] == list(range(1, len(live) + 1))
    resumed.finish_seed(first)
    assert_mirrors(first, ET)
    replacing = TensorBoard(ET)
    train(replacing, second, range(1, 13))
    replacing.finish_seed(second)
    assert_mirrors(second, ET)
    TensorBoard(ET).close(make_result(ET, [first]), [first])  # the recipe was changed back
    assert_mirrors(first, ET)
