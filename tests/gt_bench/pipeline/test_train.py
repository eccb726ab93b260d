"""Stage train: each run is computed once; kill -9 and resume, unavailable data, invalid recipes, no tracking server."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.experiment import run
from gt_bench.experiment.train_seeds import Pace
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.runtime.worker_pool import Lost
from gt_bench.store.run_store import Store
from tests.forked import Forked
from tests.gt_bench.conftest import RECIPE
from tests.refusals import refused

CELL = "small/web/mlp"


def train(cell=CELL):
    grid = load_grid()
    return train_cell(grid.find(cell), grid)


@pytest.mark.slow
def test_a_cell_is_trained_once_per_seed_and_then_read_from_the_store(project, capsys):
    project.recipe()
    first = train()
    assert first.status == "ok"
    assert json.loads(Path("results/small/web/mlp.json").read_text()) == first.to_disk()
    records = {r.digest: r for r in project.records()}
    assert sorted(records) == sorted(first.runs)
    assert [records[d].run.split for d in first.runs] == [0, 1]
    capsys.readouterr()
    stamps = [p.stat().st_mtime_ns for p in sorted(Path("store").rglob("record.json"))]
    assert train() == first
    assert capsys.readouterr().out.count("from the store") == 2
    assert [p.stat().st_mtime_ns for p in sorted(Path("store").rglob("record.json"))] == stamps
    # the same run under another name, and one more seed: only the new seed is computed
    project.recipe(row="again", seeds=[1, 0, 2])
    assert set(train("small/web/again").runs) > set(first.runs)
    assert len(project.records()) == 3


@pytest.mark.slow
def test_two_processes_that_ask_for_the_same_cell_do_the_work_once(project):
    project.recipe(epochs=30)
    both = [Forked(train, Path(), Path(f"log-{number}")) for number in range(2)]
    assert [process.end().status for process in both] == [0, 0]
    outputs = [process.said for process in both]
    assert sum(o.count(" s)") for o in outputs) == 2
    assert sum(o.count("from the store") for o in outputs) == 2


def test_a_dataset_that_is_unavailable_is_a_row_and_later_a_run(project):
    project.recipe()
    packed = Path("data/packed/web")
    packed.rename("aside")
    packed.mkdir()
    note = {"dataset": "web", "reason": "no source", "tried": [], "remedy": "fetch it"}
    (packed / "unavailable.json").write_text(json.dumps(note))
    result = train()
    assert (result.status, result.runs, "fetch it" in result.reason) == ("not run: data", [], True)
    (packed / "unavailable.json").unlink()
    packed.rmdir()
    Path("aside").rename(packed)
    assert train().status == "ok"


def test_limits_cut_and_report_it(project):
    project.recipe(limits={"small": {"seeds": 1, "epochs": 2}})
    result = train()
    assert [*map(str, result.reduced)] == ["1 of 2 seeds", "2 of 6 epochs"]
    (record,) = project.records()
    assert record.run.epochs["epoch"] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        ({"model": {"name": "mlp", "hiden_dim": 8}}, "model.hiden_dim", "did you mean 'hidden_dim'?"),
        ({"model": {"name": "mlp", "activation": "reluu"}}, "model", "unknown activation 'reluu'"),
        ({"loss": "hinge"}, "loss", "given: 'hinge'"),
        ({"split": 7}, "split", "no split 7"),
        ({"batch": {"graphs": 2}}, "", "batch.graphs and batch.nodes require many graphs"),
    ],
)
def test_bad_recipes_end_with_one_clear_message(project, changes, place, problem):
    project.recipe(**changes)
    with refused(RecipeError, place=place) as error:
        train()
    assert problem in error.value.problem
    assert not Path("results").exists()


def fine_tune(project, source=None, **changes):
    """The cell small/web/fine, which starts from small/web/mlp."""
    project.recipe(**{"keep_weights": True, "epochs": 3, "seeds": [0]} | (source or {}))
    project.recipe(row="fine", **{"start": {"cell": CELL}, "epochs": 2, "seeds": [0]} | changes)


def test_fine_tuning_begins_from_the_best_weights_of_the_same_seed(project):
    still = {"name": "sgd", "lr": 1e-12}
    fine_tune(project, optimizer=still)
    with refused(RecipeError, place=f"start: {CELL}", problem="the run with seed 0 is not in the store"):
        train("small/web/fine")
    first = train()
    assert (Path("store") / first.runs[0][:2] / first.runs[0] / "weights.safetensors").exists()
    fine = train("small/web/fine")
    records = {r.digest: r.run for r in project.records()}
    source, tuned = records[first.runs[0]], records[fine.runs[0]]
    # at this rate nothing is learned: the fine-tuned model is the best one of the source
    assert tuned.val == source.val
    assert tuned.test == source.test
    assert tuned.recipe["start"] == {"load": "all", "run": first.runs[0]}
    # another source is another run
    fine_tune(project, {"epochs": 4}, optimizer=still)
    train()
    assert train("small/web/fine").runs != fine.runs


def test_weights_that_were_not_stored_are_made_again(project):
    fine_tune(project, {"keep_weights": False})
    before = train()
    with refused(RecipeError, place=f"start: {CELL}", problem="the run with seed 0 has no saved weights"):
        train("small/web/fine")
    fine_tune(project)
    assert train().runs == before.runs  # saving weights changes no number
    assert train("small/web/fine").status == "ok"


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_checkpoint_that_was_left_next_to_a_final_record_goes(project, parallel):
    """A process that is killed between writing a record and removing its checkpoint leaves both."""
    project.recipe(run={"parallel": parallel}, epochs=2, seeds=[0, 1])
    runs = train().runs
    left = [Store("store").folder(digest) / "checkpoint.safetensors" for digest in runs]
    for path in left:
        path.write_bytes(b"x")
    assert train().runs == runs
    assert not any(path.exists() for path in left)


def test_a_killed_cell_has_no_result_before_its_weights_and_history_are_complete(project, monkeypatch):
    """`gt-bench work` does not train a cell with a result again."""
    project.recipe(epochs=1, seeds=[0])

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gt_bench.pipeline.train.keep_best", killed)
        with pytest.raises(KeyboardInterrupt):
            train()
    assert not Path("results", f"{CELL}.json").exists()
    assert train().status == "ok"


def test_a_model_that_cannot_start_from_the_other(project):
    wide = {**RECIPE["model"], "hidden_dim": 16}
    fine_tune(project, model=wide)
    train()
    with refused(RecipeError, place=f"start: {CELL}") as error:
        train("small/web/fine")
    assert "differ in encoder.linear.bias" in error.value.problem
    fine_tune(project, model=wide, start={"cell": CELL, "load": "common"})
    assert train("small/web/fine").status == "ok"  # with the last bias of the other
    fine_tune(project, start={"cell": "small/web/mpl"})
    with refused(RecipeError, place="cells.small-web-fine.after", value="small/web/mpl"):
        train("small/web/fine")
    # cells that start from each other
    project.recipe(keep_weights=True, start={"cell": "small/web/fine"}, seeds=[0])
    project.recipe(row="fine", keep_weights=True, start={"cell": CELL}, seeds=[0])
    with refused(RecipeError, place="start.cell"):
        train("small/web/fine")


def test_a_cell_that_is_not_searched_yet(project):
    project.recipe(search={"trials": 1, "space": {"model.dropout": {"choices": [0.1]}}})
    with refused(RecipeError, file="tuned/small/web/mlp.yaml", problem="file not found"):
        train()


@pytest.mark.slow
def test_a_search_of_another_recipe(project):
    """A changed recipe must be searched again before it is trained."""
    search = {"trials": 1, "space": {"model.dropout": {"choices": [0.25]}}}
    project.recipe(search=search)
    grid = load_grid()
    tune_cell(grid.find(CELL), grid)
    assert train().recipe["model"]["dropout"] == 0.25
    narrower = {"trials": 1, "space": {"model.dropout": {"choices": [0.5, 0.75]}}}
    for change in ({"search": narrower}, {"seeds": [5]}, {"epochs": 2}):
        project.recipe(**{"search": search, **change})
        with refused(RecipeError, file="tuned/small/web/mlp.yaml") as error:
            train()
        assert "was edited after this search" in error.value.problem
    tune_cell(grid.find(CELL), grid)
    assert train().status == "ok"


def test_a_cell_that_starts_from_a_failed_run_fails_too(project):
    fine_tune(project, {"optimizer": {"name": "sgd", "lr": 1e30}, "epochs": 9})
    assert train().status == "diverged"
    fine = train("small/web/fine")
    assert fine.status == "diverged"
    assert "starts from (small/web/mlp, seed 0): outputs on val are not finite" in fine.reason


# -- in parallel


@pytest.fixture
def beside(project, monkeypatch):
    """`beside(**changes)` trains the cell with two seeds at once, however short they are."""
    monkeypatch.setattr(Pace, "GAIN", 0.0)
    return lambda **changes: project.recipe(run={"parallel": 2}, **{"seeds": [0, 1, 2]} | changes)


def deterministic(root="store"):
    return {record.digest: record.run for record in Store(root).records()}


@pytest.mark.slow
def test_seeds_side_by_side_leave_what_they_leave_one_after_the_other(project, beside, capsys):
    project.recipe(seeds=[0, 1, 2])
    in_turn = train()
    Path("store").rename("in turn")
    beside()
    capsys.readouterr()
    assert train() == in_turn
    assert deterministic() == deterministic("in turn")
    assert "from the store" not in capsys.readouterr().out
    for record in project.records():  # each process measured itself
        assert 10 < record.measured.peak_memory_mib < 4000
        assert 0 < record.measured.seconds < 60
        assert record.measured.threads == 1
    assert train() == in_turn
    assert capsys.readouterr().out.count("from the store") == 3


@pytest.mark.slow
def test_a_seed_that_is_killed_loses_no_other_and_the_same_command_resumes(project, beside, monkeypatch):
    beside()
    compute = run.compute

    def killed(experiment, seed, *arguments):
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(experiment, seed, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run, "compute", killed)
        with pytest.raises(Lost) as error:
            train()
    assert "2 of 3 seeds are stored" in str(error.value)
    assert {ran.seed for ran in deterministic().values()} == {0, 2}
    assert not Path("results").exists()
    stamps = {path: path.stat().st_mtime_ns for path in Path("store").rglob("record.json")}
    assert train().status == "ok"
    assert len(project.records()) == 3
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


FILE = "suites/small/recipes/web/mlp.yaml"


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "fail"), [(1, 1), (2, 1), (1, 2)])
def test_a_seed_that_fails_loses_no_other(project, monkeypatch, parallel, fail):
    project.recipe(run={"parallel": parallel}, seeds=[0, 1, 2])
    compute = run.compute

    def fails(experiment, seed, *arguments):
        if seed < fail:
            raise RecipeError(f"not with seed {seed}", file=FILE, place="model", value=seed, remedy="leave it out")
        return compute(experiment, seed, *arguments)

    monkeypatch.setattr(run, "compute", fails)
    fields = {"file": FILE, "place": "model", "value": 0} if fail == 1 else {"file": "small/web/mlp", "value": None}
    with refused(RecipeError, **fields) as error:
        train()
    assert all(f"not with seed {seed}" in str(error.value) for seed in range(fail))
    assert f"{3 - fail} of 3 seeds" in error.value.remedy
    assert {ran.seed for ran in deterministic().values()} == {*range(fail, 3)}


def test_a_bug_in_a_process_of_a_seed_is_raised_with_where_it_was(beside, monkeypatch):
    beside()
    monkeypatch.setattr(run, "compute", lambda experiment, seed, *_: [][seed])
    with pytest.raises(IndexError) as error:
        train()
    assert "gt_bench/experiment/run.py" in error.value.__notes__[0]


# -- several cells


def run_cli(*arguments):
    return CliRunner().invoke(app, ["train", *arguments])


@pytest.mark.slow
def test_cells_side_by_side_leave_what_they_leave_one_after_the_other(project):
    widths = {"one": {**RECIPE["model"], "hidden_dim": 9}, "two": {**RECIPE["model"], "hidden_dim": 7}}
    for row, model in widths.items():
        project.recipe(row=row, model=model, keep_weights=True)
    project.recipe(row="fine", start={"cell": "small/web/one"}, model=widths["one"])
    assert run_cli("small/web/one", "small/web/two", "small/web/fine").exit_code == 0
    in_turn = deterministic()
    Path("store").rename("in turn")
    shutil.rmtree("results")
    done = run_cli("small", "--jobs", "3")
    assert (done.exit_code, done.output) == (0, done.output)
    assert deterministic() == in_turn
    assert len(list(Path("results").rglob("*.json"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_cell_that_cannot_be_trained_costs_no_other(project, jobs):
    project.recipe()
    project.recipe(row="wrong", model={"name": "mlp", "hiden_dim": 8})
    project.recipe(row="last", epochs=3)
    done = run_cli("small", "--jobs", jobs)
    assert done.exit_code == 1
    assert "error: small/web/wrong: " in done.stderr
    assert {path.stem for path in Path("results").rglob("*.json")} == {"mlp", "last"}
