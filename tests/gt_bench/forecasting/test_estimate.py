"""Forecasts: from timed blocks to hours, on real and on random data, and the actual cost."""

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gt_bench.cli import app
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.data.registry import catalog
from gt_bench.forecasting import estimate as room
from gt_bench.forecasting import step_timing as timed
from gt_bench.forecasting.estimate import Forecast, actual, forecast_cell
from gt_bench.pipeline.train import train_cell
from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT

CELL = "small/web/mlp"
WARMUP = (100 - 2 + 100 - 0.5) / 2  # by the clock below, once for two seeds


@pytest.fixture
def clock(monkeypatch):
    """A fake clock: training takes 2 s, evaluation 0.5 s, the test part 7 s, and the first of each 100 s (warm-up)."""

    @contextlib.contextmanager
    def timing(self, what):
        yield
        usual = {"train": 2.0, "eval": 0.5, "test": 7.0}[what]
        self.stretches[what].append(usual if self.stretches[what] or what == "test" else 100.0)

    monkeypatch.setattr(timed.Stopwatch, "timing", timing)


def seconds(cell: str = CELL, **options) -> Forecast:
    loaded = load_grid()
    found = forecast_cell(loaded.find(cell), loaded, **options)
    assert found.problem is None, found.problem
    return found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epochs": 30}, 30 * 2 + 30 * 0.5 + 0.5),
        ({"epochs": 30, "eval_every": 4}, 30 * 2 + 8 * 0.5 + 0.5),
        ({"epochs": 30, "eval_every": 4, "eval_after": 12}, 30 * 2 + 5 * 0.5 + 0.5),
        ({"epochs": 30, "patience": 1}, 30 * 2 + 30 * 0.5 + 0.5),
        ({"epochs": 30, "limits": {"small": {"epochs": 10}}}, 10 * 2 + 10 * 0.5 + 0.5),
        ({"batch": {"parts": 5}, "epochs": 3}, 3 * 2 + 3 * 0.5 + 0.5),
    ],
)
def test_epochs_and_evaluations_are_counted(grid, clock, changes, expected):
    grid.recipe(**changes)
    found = seconds()
    expected += WARMUP
    assert found.seconds == pytest.approx(expected)
    assert (found.basis, found.seeds) == ("real data", 2)
    assert found.total_seconds == pytest.approx(2 * expected)
    assert found.memory_mib > 100
    assert found.disk["data/web"] == Path("data/packed/web/data.safetensors").stat().st_size


def test_an_epoch_that_is_not_timed_to_its_end_is_counted_in_batches(grid, clock):
    grid.recipe(dataset="many", batch={"graphs": 2}, epochs=10)
    # 10 training graphs in 5 batches, and as many for validation and test, three of each are sampled
    found = seconds("small/many/mlp", budget=-1.0)
    assert found.seconds == pytest.approx(5 / 3 * (10 * 2 + 10 * 0.5 + 7) + WARMUP)


def test_a_search_is_counted_apart(grid, clock):
    grid.recipe(epochs=10, search={"trials": 7, "seeds": [0, 1], "space": {"model.dropout": {"choices": [0.0, 0.5]}}})
    found = seconds()
    assert found.search_seconds == pytest.approx(7 * 2 * found.seconds)
    assert found.total_seconds == pytest.approx(16 * found.seconds)
    path = Path("params.yaml")
    path.write_text(path.read_text() + "fair_search: {small: 3}\n")
    assert seconds().search_seconds == pytest.approx(3 * 2 * found.seconds)
    grid.recipe(epochs=10, search={"trials": 7, "sampler": "grid", "space": {"model.dropout": {"choices": [0.0, 0.5]}}})
    found = seconds()
    assert found.search_seconds == pytest.approx(2 * found.seconds), "a grid ends with its points"


def test_trials_cost_what_both_ends_of_the_space_do(grid, monkeypatch):
    def cost(experiment, scale, budget):
        width, layers = experiment.recipe.model.arguments["hidden_dim"], experiment.recipe.model.arguments["num_layers"]
        return float(width * layers), 100.0 + width, 1000, 10

    monkeypatch.setattr("gt_bench.forecasting.step_timing.seconds_of", cost)
    space = {"model.hidden_dim": {"choices": [64, 8, 16]}, "model.num_layers": {"low": 1, "high": 3, "integer": True}}
    grid.recipe(search={"trials": 10, "space": space})
    found = seconds()
    assert found.seconds == (8 * 1 + 64 * 3) / 2
    assert found.search_seconds == 10 * found.seconds
    assert found.memory_mib == 164
    # after the search a seed costs what the chosen recipe costs
    chosen = yaml.safe_load(Path(recipe_file(CELL)).read_text())
    del chosen["search"]
    chosen["model"] |= {"hidden_dim": 16, "num_layers": 2}
    Path("tuned/small/web").mkdir(parents=True)
    Path(f"tuned/{CELL}.yaml").write_text(yaml.safe_dump(chosen))
    assert seconds().seconds == 16 * 2
    assert seconds().search_seconds == found.search_seconds


def test_draws_of_untrained_weights_are_counted(monkeypatch):
    """SR25 on random graphs of its size: two draws are timed, the first as warm-up; the recipe requests three."""
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    trial = timed._trial

    def measured(experiment, epochs, budget):
        done = trial(experiment, epochs, budget)
        assert len(done.watch.stretches["eval"]) == epochs == 2
        done.watch.stretches["eval"] = [5.0, 2.0]
        return done

    monkeypatch.setattr(timed, "_trial", measured)
    found = forecast_cell(grid.find("ppgt/sr25/gin"), grid, data=Path("nothing"))
    assert load_recipe(ROOT / "suites/ppgt/recipes/sr25/gin.yaml").epochs == 3
    assert (found.problem, found.basis, found.seconds) == (None, room.LIKE, 5.0 + 2 * 2.0)


def test_a_protocol_is_timed_on_the_parts_of_a_miniature_and_counted_with_its_own(monkeypatch):
    """Without BREC the stand-in data has two of its pairs, whichever sixty a recipe requests."""
    monkeypatch.chdir(ROOT)
    grid, timed_parts, cost = load_grid(), [], timed.seconds_of

    def noted(experiment, scale, budget):
        cost(experiment, scale, budget)
        timed_parts.append(experiment.recipe.brec.parts)
        return 7.0, 1.0, 1, 1

    monkeypatch.setattr(timed, "seconds_of", noted)
    cell = grid.find("ppgt/brec/gin")
    some = load_recipe(cell.recipe_path).with_values({"brec.pairs": [[100, 160]]})
    monkeypatch.setattr(room, "recipe_to_train", lambda *_: some)
    found = forecast_cell(cell, grid, data=Path("nothing"), budget=0.0)
    assert (found.problem, timed_parts, found.seconds) == (None, [2], 60 / 2 * 7.0)


@pytest.mark.parametrize("dataset", ["questions", "peptides-struct"])
def test_without_data_graphs_of_the_published_size_replace_it(grid, clock, dataset, monkeypatch):
    """A large graph, which is cut and scaled, and a dataset of many graphs, of which 256 are sampled."""
    monkeypatch.setattr("gt_bench.data.standin.LARGEST_GRAPH", 1000)
    batch = {} if dataset == "questions" else {"graphs": 128}
    grid.recipe(epochs=10, batch=batch, model={"name": "mlp", "hidden_dim": 8, "num_layers": 1})
    spec = catalog()[dataset]
    loaded = load_grid()
    cell = loaded.find(CELL).model_copy(update={"dataset": dataset})
    found = forecast_cell(cell, loaded, data=Path("nothing"))
    assert found.problem is None
    assert found.basis == room.LIKE
    nodes = spec.expected["nodes"]
    once = 10 * 2 + 10 * 0.5
    if dataset == "questions":
        assert found.seconds == pytest.approx((once + 0.5) * nodes / 1000 + WARMUP)
    else:  # scaled by the nodes of all graphs over those of the 256
        assert found.seconds == pytest.approx((once + 7) * 15535 / 256 + WARMUP, rel=0.1)
    assert not Path("nothing").exists()


def test_a_missing_forecast_states_why(grid):
    grid.recipe()
    loaded = load_grid()
    cell = loaded.find(CELL)
    assert (
        "sizes of its graphs"
        in forecast_cell(cell.model_copy(update={"dataset": "jets"}), loaded, data=Path("nothing")).problem
    )
    assert "no dataset named" in forecast_cell(cell.model_copy(update={"dataset": "wbe"}), loaded).problem
    grid.recipe(optimizer={"name": "sgd", "lr": 1e30})
    assert "diverged" in forecast_cell(cell, loaded).problem
    grid.recipe(model={"name": "mlp", "hidden_dim": -8, "num_layers": 1})
    assert "negative dimension -8" in forecast_cell(cell, loaded).problem


@pytest.mark.slow
def test_encodings_that_are_not_there_are_computed_next_to_the_data(grid, clock):
    model = {"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2}
    grid.recipe(dataset="many", model=model, encodings={"laplacian": {"k": 16}}, batch={"graphs": 5})
    before = sorted(p for p in Path("data").rglob("*") if not p.name.endswith(".checked.json"))
    found = seconds("small/many/mlp")
    assert sorted(p for p in Path("data").rglob("*") if not p.name.endswith(".checked.json")) == before
    assert any(name.startswith("encodings/many/laplacian") for name in found.disk)
    assert found.encode_seconds > 0


@pytest.mark.slow
def test_next_to_what_it_took_on_this_device_with_this_recipe(grid):
    grid.recipe()
    loaded = load_grid()
    cell = loaded.find(CELL)
    assert actual(cell, loaded) is None
    train_cell(cell, loaded)
    path = Path("results", f"{cell.cell}.json")
    whole = path.read_bytes()
    for damaged in (b"[]", b"3", b"{}", b"{"):
        path.write_bytes(damaged)
        assert actual(cell, loaded) is None
    path.write_bytes(whole)
    took = actual(cell, loaded)
    assert took.seconds > 0
    for path in Path("store").glob("??/*/record.json"):
        path.write_text(
            path.read_text().replace('"threads": 1', '"threads": 2')
        )  # from before threads were part of the digest
    assert actual(cell, loaded) is None
    grid.recipe(epochs=7)
    assert actual(cell, load_grid()) is None


@pytest.mark.slow
def test_a_real_cell_in_a_process_of_its_own(monkeypatch):
    """The forecast uses random graphs, regardless of stored data, and takes less time than a training."""
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    said = []
    found = room.forecast([grid.find("embedded/chains/mlp")], grid, data=Path("nothing"), budget=0.05, say=said.append)
    assert found[0].problem is None
    assert found[0].seconds > 0
    assert json.dumps(said).count("embedded/chains/mlp") == 1


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_seconds_below_nothing(seconds):
    assert CliRunner().invoke(app.app, ["forecast", "--seconds", seconds]).exit_code == 2


@pytest.mark.parametrize(
    ("problems", "status"), [(["no data", "no data"], 1), (["no data", None], 0), ([None, None], 0)]
)
def test_the_status_is_whether_a_cell_has_a_forecast(grid, monkeypatch, problems, status):
    grid.recipe()
    ones = [
        Forecast("a", problem=text) if text else Forecast("b", "real data", 1.0, 1, memory_mib=1.0, disk={})
        for text in problems
    ]
    monkeypatch.setattr(room, "forecast", lambda *_, **__: ones)
    assert CliRunner().invoke(app.app, ["forecast", "small"]).exit_code == status
