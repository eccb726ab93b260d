"""Records that travel: out of one store and into another, checked on the way, and held against the present tree."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_models.encodings import compute_with_flags
from stages import cli
from stages.datasets import encoding
from stages.datasets.catalog import catalog
from stages.datasets.packed import PackedHeader, write_header
from stages.datasets.spec import DatasetSpec
from stages.fingerprint import _read_version
from stages.own.plain import OwnModelError
from stages.params import load_grid
from stages.records.board import board, every_row, page
from stages.records.gathered import gather
from stages.records.shipped import Shipped, problems_of, read, record_problems, shipped_cells
from stages.records.staleness import standing
from stages.records.transfer import Conflict, export_cell, import_records, verify
from stages.report.paper_table import our_number
from stages.report.published import lookup
from stages.report.table import cells
from stages.schema import RecipeError
from stages.store import Store, StoreError, sealed
from stages.train import train_cell
from tests.conftest import ROOT
from tests.stages.conftest import COMMIT

CELL = "small/web/mlp"


@pytest.fixture
def trained(project, monkeypatch):
    """The project with its one cell trained; `web` is a dataset of the catalog, packed from its present spec."""
    spec = DatasetSpec(name="web", family="test", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    edit_header(provenance={"spec": spec.digest})
    project.recipe()
    train()
    return project


def edit_header(**changes):
    folder = Path("data/packed/web")
    write_header(folder, PackedHeader.model_validate_json((folder / "header.json").read_bytes()).model_copy(update=changes))


def train():
    grid = load_grid()
    return train_cell(grid.find(CELL), grid)


def export(**options) -> Path:
    return export_cell(load_grid().find(CELL), **options)


def rewrite(path: Path, change) -> None:
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments))


def test_there_and_back_gives_equal_records_and_equal_bytes(trained):
    path = export()
    first = path.read_bytes()
    stored = {p: p.read_text() for p in Path("store").rglob("record.json")}
    assert len(stored) == 2
    shutil.rmtree("store")
    assert import_records(list(shipped_cells(load_grid()))) == (2, 0)
    assert {p: json.loads(p.read_text()) for p in Path("store").rglob("record.json")} == {p: json.loads(t) for p, t in stored.items()}
    assert import_records(list(shipped_cells(load_grid()))) == (0, 2)
    path.unlink()
    assert export().read_bytes() == first
    # a cell whose records were imported is not trained again
    shutil.rmtree("results")
    before = {p: p.stat().st_mtime_ns for p in Path("store").rglob("record.json")}
    assert train()["status"] == "ok"
    assert {p: p.stat().st_mtime_ns for p in Path("store").rglob("record.json")} == before


def test_a_record_of_another_machine_is_there_already_and_one_that_contradicts_stops_everything(trained):
    path = export()
    digest = json.loads(Path("results", f"{CELL}.json").read_text())["runs"][1]
    file = Store().folder(digest) / "record.json"
    elsewhere = json.loads(file.read_text())
    elsewhere["measured"]["device"] = "another"
    file.write_text(json.dumps(elsewhere))
    assert import_records([read(path)]) == (0, 2)
    assert json.loads(file.read_text())["measured"]["device"] == "another"
    elsewhere["deterministic"]["test"] = 0.125
    file.write_text(json.dumps(sealed(elsewhere)))
    other = next(p for p in Path("store").rglob("record.json") if p != file)
    other.unlink()
    with pytest.raises(Conflict, match=r"differ in test\nNothing is imported\. Keep one"):
        import_records([read(path)])
    assert not other.exists()
    elsewhere["measured"]["environment"]["cpu"] = "another"
    file.write_text(json.dumps(sealed(elsewhere)))
    with pytest.raises(Conflict, match=r"differ in test \(computed on another and on .+\)\nNothing is imported"):
        import_records([read(path)])


def _break(change):
    def applied(content):
        change(content["records"][0])

    return applied


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_break(lambda r: r["deterministic"].update(seed=7)), "its contents give the digest"),
        (_break(lambda r: r["deterministic"]["recipe"]["optimizer"].update(lr=1.0)), "its recipe does not have the digest"),
        (_break(lambda r: r["deterministic"]["digests"].pop("code")), "lacks the digest of code"),
        (_break(lambda r: r["deterministic"].pop("test_metrics")), "lacks test_metrics"),
        (_break(lambda r: r["deterministic"].update(test=None)), "ok without a test value"),
        (_break(lambda r: r["deterministic"].update(status="fine")), "unknown status 'fine'"),
        (_break(lambda r: r["deterministic"]["epochs"]["val"].pop()), "its curves have 5, 6 epochs"),
        (_break(lambda r: r["measured"].pop("device")), "lacks device"),
        (_break(lambda r: r.update(schema=9)), "schema 9, this code reads 1"),
        # an edited number that contradicts no other
        (_break(lambda r: r["deterministic"]["epochs"]["train_loss"].__setitem__(0, 9.0)), "does not have the checksum that it names"),
        (_break(lambda r: r["deterministic"].update(parameters=7)), "does not have the checksum that it names"),
        # a record that contradicts itself
        (_break(lambda r: r["deterministic"].update(test=0.987)), "its test value is 0.987, its accuracy on the test split"),
        (_break(lambda r: r["deterministic"]["test_metrics"].pop("accuracy")), "its accuracy on the test split None"),
        (_break(lambda r: r["deterministic"].update(val=0.987)), "its validation value is 0.987, its curve has"),
        (_break(lambda r: r["deterministic"].update(val=None)), "its validation value is None, its curve has"),
        (_break(lambda r: r["deterministic"].update(best_epoch=99)), "its best epoch is 99, which its validation curve does not have"),
        (_break(lambda r: r["deterministic"].update(best_epoch=None)), "its best epoch is None, which"),
        (_break(lambda r: r["deterministic"].update(test=True)), "its test is true, not a number"),
        (_break(lambda r: r["deterministic"]["test_metrics"].update(loss=True)), "its loss on the test split is no number"),
        (_break(lambda r: r["deterministic"]["epochs"].update(val=[True] * 6)), "its curve of val holds what is no number"),
        (
            _break(lambda r: r["deterministic"].update(test=1.5, test_metrics={"accuracy": 1.5})),
            "its accuracy on the test split is 1.5, and a share lies between 0 and 1",
        ),
        (
            _break(lambda r: r["deterministic"].update(metric="loss", test=r["deterministic"]["test_metrics"]["loss"])),
            "it measures loss (max), and web is measured by accuracy (max)",
        ),
        (_break(lambda r: r["deterministic"].update(direction="min")), "it measures accuracy (min), and web is measured by accuracy (max)"),
        (lambda c: c["result"].update(metric="mae"), "measures another metric than its result names"),
        (_break(lambda r: r["deterministic"].update(status="oom")), "status oom with a test value"),
        # what ended in tracebacks
        (_break(lambda r: r["deterministic"].update(digests=None)), "its digests is null, not a mapping"),
        (_break(lambda r: r["deterministic"].update(epochs=[])), "its epochs is [], not a mapping"),
        (_break(lambda r: r["deterministic"]["epochs"].update(val=None)), "its curve of val is no list"),
        (_break(lambda r: r["deterministic"].update(parameters="x")), 'its parameters is "x", not a whole number'),
        (_break(lambda r: r["measured"].update(environment=None)), "its environment is null, not a mapping"),
        (_break(lambda r: r["measured"].update(peak_memory_mib=None)), "its peak_memory_mib is null, not a number"),
        (lambda c: c["result"].update(runs=None), "its runs is null, not a list"),
        (lambda c: c["result"].update(seeds=None), "its seeds is null, not a list"),
        (lambda c: c["result"].update(reduced=None), "its reduced is null, not a list"),
        (lambda c: c["result"].update(reduced=[7]), "an entry of reduced is not text"),
        (lambda c: (c.update(records=[]), c["result"].update(runs=[])), "holds no record"),
        (lambda c: c["records"].reverse(), "are not the runs that its result names"),
        (lambda c: (c["records"].append(c["records"][0]), c["result"]["runs"].append(c["result"]["runs"][0])), "seed 0 stands twice"),
        (lambda c: c["result"].update(cell="small/many/mlp"), "is the file of small/many/mlp"),
        (lambda c: c["result"].pop("reduced"), "lacks reduced"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_and_nothing_of_it_is_imported(trained, change, says):
    path = export()
    rewrite(path, change)
    assert says in "\n".join(problems_of(read(path)))
    shutil.rmtree("store")
    with pytest.raises(StoreError, match="nothing is imported"):
        import_records([read(path)])
    assert not list(Path("store").rglob("record.json"))
    shown = run("store", "verify")
    assert shown.exit_code == 1
    assert says in shown.output


# 50 zeros behind the header: zlib.error, which is neither an OSError nor a ValueError
ZEROED = gzip.compress(b"{}" * 99)[:10] + bytes(50)
DEEP = gzip.compress(b'{"schema": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b'{"schema": 4}'), ZEROED, DEEP])
def test_a_file_that_is_no_export(trained, content):
    path = export()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{path}: not an export"):
        read(path)


def test_verify_goes_on_after_a_file_that_cannot_be_read(trained):
    trained.recipe(row="other")
    train_cell(load_grid().find("small/web/other"), load_grid())
    path = export()
    export_cell(load_grid().find("small/web/other"))
    path.write_bytes(path.read_bytes()[:10] + bytes(50) + path.read_bytes()[60:])
    shown = run("store", "verify")
    assert shown.exit_code == 1
    assert f"{path}: not an export of records" in shown.output
    assert "small/web/other: 2 runs on cpu" in shown.output
    assert "1 shipped cells, 0 stale, 1 problems" in shown.output


def test_doctor_finds_a_record_of_the_store_that_contradicts_itself(trained):
    path = sorted(Path("store").rglob("record.json"))[0]
    record = json.loads(path.read_text())
    record["deterministic"]["test"] = 0.987
    path.write_text(json.dumps(sealed(record)))
    shown = run("doctor")
    assert shown.exit_code == 1
    assert f"{path}: its test value is 0.987" in shown.output


@pytest.mark.parametrize(
    "command", ["store verify", "store import", "board small", "board --dataset web", "compare mlp small/mlp", "page", "table", "claims"]
)
def test_a_folder_of_records_that_is_not_there_is_an_error(trained, command):
    export()
    shown = run(*command.split(), "--records", "nope")
    assert isinstance(shown.exception, StoreError)
    assert str(shown.exception).startswith("nope: no such folder of shipped records")


def test_a_file_under_the_name_of_another_cell_stops_the_board(trained):
    path = export()
    trained.recipe(row="another")
    shutil.copy(path, path.with_name("another.json.gz"))
    with pytest.raises(StoreError, match=f"another.json.gz: is the file of {CELL}"):
        board("small", load_grid())


def test_a_metric_that_is_undefined_on_a_split_is_shown_by_the_board(trained):
    path = export()
    undefined = {"test": float("nan"), "test_metrics": {"accuracy": float("nan")}}
    rewrite(path, _break(lambda r: r.update(sealed(r | {"deterministic": r["deterministic"] | undefined}))))
    assert problems_of(read(path)) == []
    row = board("small", load_grid())[0]
    assert (row["status"], row["mean"], row["verdict"]) == ("no number", None, "none: no result")
    assert row["reason"] == "accuracy is not a number on this split: nan of seed 0"


def test_a_damaged_result_is_not_exported(trained):
    Path("results", f"{CELL}.json").write_text("[]")
    with pytest.raises(StoreError, match=f"results/{CELL}.json: not a result .* delete it and run: python -m stages.train {CELL}"):
        export()


def test_the_same_run_told_in_two_ways(trained):
    one = read(export())
    other = json.loads(json.dumps(one.records[0]))
    other["deterministic"]["parameters"] += 1
    other = sealed(other)
    second = Shipped(Path("records/small/web/twin.json.gz"), one.result | {"cell": "small/web/twin"}, [other, one.records[1]])
    assert verify([one]) == []
    assert "hold different records of one run (they differ in parameters)" in verify([one, second])[0]


def test_an_import_is_on_the_leaderboard_at_once(trained):
    from stages.leaderboard import collect

    def row() -> dict:
        return collect([load_grid().find(CELL)], Path("results"), Store(), 1.0)[0][0]

    computed = row()
    export()
    for folder in ("store", "results"):
        shutil.rmtree(folder)
    assert "1 results written" in run("store", "import").output
    note = f"imported: shipped record of commit {COMMIT[:12]}"
    assert row() == computed | {"notes": [*computed["notes"], note]}
    exported = Path("records", f"{CELL}.json.gz").read_bytes()
    export()
    assert Path("records", f"{CELL}.json.gz").read_bytes() == exported  # that it was imported does not travel
    # what is stale says so, and training takes what is not for done
    trained.recipe(epochs=7)
    run("store", "import")
    assert (row()["status"], row()["notes"][-1]) == ("ok, stale: recipe", f"{note}; stale when it was imported: recipe")
    trained.recipe()
    assert train()["runs"] == computed["digests"]
    assert row() == computed
    # a result of one's own stays, and so does one that is broken
    assert "0 results written" in run("store", "import").output
    assert row() == computed
    Path("results", f"{CELL}.json").write_text("[]")
    assert "0 results written" in run("store", "import").output
    # one without runs gives way
    Path("results", f"{CELL}.json").unlink()
    shutil.move("data", "elsewhere")
    assert train()["status"] == "not run: data"
    assert "1 results written" in run("store", "import").output
    assert row()["runs"] == 2


def test_a_search_trial_in_the_store_is_a_sound_record(project):
    from stages.tune import tune_cell

    project.recipe(search={"trials": 2, "space": {"model.dropout": {"choices": [0.0, 0.5]}}})
    grid = load_grid()
    tune_cell(grid.find(CELL), grid)
    found = project.records()
    assert found
    assert [record_problems(r) for r in found] == [[]] * len(found)
    assert verify([]) == []


def test_a_reduced_cell_does_not_take_the_place_of_a_full_one(trained):
    path = export()
    full = path.read_bytes()
    trained.recipe(limits={"small": {"epochs": 2, "seeds": 1}})
    train()
    with pytest.raises(StoreError, match="2 runs at full settings.*reduced"):
        export()
    assert path.read_bytes() == full
    export(replace=True)
    # the cell reports that epochs were cut; its recipe is still the current one
    shipped = read(path)
    assert shipped.result["reduced"] == ["1 of 2 seeds", "2 of 6 epochs"]
    trained.recipe()
    assert standing(shipped, load_grid()).stale == []


def test_what_changed_since_makes_a_cell_stale(trained, monkeypatch):
    shipped = read(export())
    grid = load_grid()
    assert standing(shipped, grid).text == "as the present tree computes it"
    # without data: the digests of what they were made from
    shutil.move("data", "elsewhere")
    assert standing(shipped, grid).text == "as the present tree computes it"
    nowhere = Shipped(shipped.path, shipped.result, shipped.records, {})
    assert standing(nowhere, grid).text == "cannot be told: data (not at hand)"
    shutil.move("elsewhere", "data")
    with monkeypatch.context() as patched:
        patched.setattr("stages.own.models.code_digest", lambda modules: "0" * 64)
        assert standing(shipped, grid).stale == ["code"]
    with monkeypatch.context() as patched:  # a model that does not even parse
        patched.setattr("stages.fingerprint.ast.parse", lambda text: compile("1 +", "model.py", "exec"))
        patched.setattr("stages.fingerprint._read_version", _read_version.__wrapped__)
        assert standing(shipped, grid).stale == ["code"]
    trained.recipe(epochs=7)
    assert standing(shipped, load_grid()).stale == ["recipe"]
    trained.recipe(seeds=[0, 1, 2])
    assert standing(shipped, load_grid()).stale == ["recipe"]
    trained.recipe()
    edit_header(in_dim=6)
    assert standing(shipped, load_grid()).stale == ["data"]
    edit_header(provenance={"spec": "older"})
    assert standing(nowhere, load_grid()).text == "cannot be told: data (made by other code)"


def test_a_fine_tuned_cell_is_compared_but_for_the_run_that_it_starts_from(trained):
    trained.recipe(keep_weights=True)
    trained.recipe(row="tuned-on", start={"cell": CELL, "load": "all"})
    grid = load_grid()
    for row in ("mlp", "tuned-on"):
        train_cell(grid.find(f"small/web/{row}"), grid)
    shipped = read(export_cell(grid.find("small/web/tuned-on")))
    assert problems_of(shipped) == []
    assert standing(shipped, grid).text == "cannot be told: the run that it starts from"
    trained.recipe(row="tuned-on", start={"cell": CELL, "load": "common"})
    assert standing(shipped, load_grid()).stale == ["recipe"]


def other_last_digits(*given, **arguments):
    arrays, flags = compute_with_flags(*given, **arguments)
    return {name: array * (1 + 2e-7) for name, array in arrays.items()}, flags


def test_encodings_are_compared_by_what_is_computed_and_never_by_bits(trained, monkeypatch):
    from stages.encode import encode_dataset

    trained.recipe(
        model={"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2}, encodings={"laplacian": {"k": 16}}, epochs=1
    )
    grid = load_grid()
    encode_dataset("web", grid)
    train()
    shipped = read(export())
    assert [*shipped.records[0]["measured"]["encodings"]] == ["laplacian-k=16-normalization=sym-which=lowest"]
    shutil.rmtree("data/encodings")  # not computed yet here, then computed by another library
    assert standing(shipped, grid).text == "as the present tree computes it"
    monkeypatch.setattr(encoding, "compute_with_flags", other_last_digits)
    encode_dataset("web", grid)
    assert standing(shipped, grid).text == "as the present tree computes it"
    assert train()["runs"] == shipped.result["runs"]
    shutil.rmtree("data")
    assert standing(shipped, grid).text == "as the present tree computes it"
    monkeypatch.setattr("stages.datasets.encoded.code_digest", lambda modules: "0" * 64)
    assert standing(shipped, grid).text == "cannot be told: encodings (not at hand)"


def test_a_searched_cell_is_held_against_its_search_space(project, monkeypatch):
    from stages.tune import tune_cell

    spec = DatasetSpec(name="web", family="test", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    search = {"trials": 2, "space": {"model.dropout": {"choices": [0.0, 0.5]}}}
    project.recipe(search=search)
    grid = load_grid()
    tune_cell(grid.find(CELL), grid)
    train()
    shipped = read(export())
    assert "recipe" not in standing(shipped, grid).stale
    project.recipe(search={**search, "space": {"model.dropout": {"choices": [0.3]}}})
    assert "recipe" in standing(shipped, load_grid()).stale
    project.recipe(search=search, epochs=9)
    assert "recipe" in standing(shipped, load_grid()).stale


def test_a_search_travels_with_its_cell_and_is_found_again_without_training(project, monkeypatch):
    from stages.engine.loop import Run
    from stages.tune import tune_cell

    spec = DatasetSpec(name="web", family="test", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    search = {"trials": 3, "seeds": [0, 1], "sampler": "grid", "space": {"model.dropout": {"choices": [0.0, 0.3, 0.5]}}}
    project.recipe(search=search)
    grid = load_grid()
    chosen = tune_cell(grid.find(CELL), grid)
    result = train()
    shipped = read(export())
    assert (len(shipped.trials), len(shipped.records)) == (6, 2)
    # another recipe's trials stay behind
    project.recipe(search={"trials": 1, "space": {"model.dropout": {"choices": [0.1]}}})
    tune_cell(load_grid().find(CELL), load_grid())
    project.recipe(search=search)
    assert read(export()) == shipped

    for folder in ("store", "studies", "tuned", "results"):
        shutil.rmtree(folder)
    assert import_records([shipped]) == (8, 0)
    monkeypatch.setattr(Run, "train", lambda *_: pytest.fail("a run was repeated"))
    assert tune_cell(grid.find(CELL), grid) == chosen
    assert train()["runs"] == result["runs"]
    rewrite(shipped.path, lambda content: content["trials"].append(content["records"][0]))
    assert problems_of(read(shipped.path)) == [f"{shipped.path}: trial 6: is no search trial"]
    rewrite(shipped.path, lambda content: content["records"].append(content["trials"].pop(0)))
    assert f"{shipped.path}: record 2: is a search trial" in problems_of(read(shipped.path))


def test_a_fresh_clone_shows_its_records_without_computing(trained, monkeypatch):
    export()
    for folder in ("store", "results", "data"):
        shutil.rmtree(folder)
    row = board("small", load_grid())[0]
    assert (row["status"], row["runs"], row["device"]) == ("ok", 2, "cpu")
    assert "as the present tree computes it" in row["notes"][-1]
    trained.recipe(epochs=8)
    trained.recipe(row="other")
    shown = run("board", "small", "--write", "out")
    assert shown.exit_code == 0, shown.output
    for text in ("stale", "nothing was computed", "1 cells have no shipped record: web/other"):
        assert text in shown.output
    assert "no shipped record" in Path("out/small.md").read_text()
    assert "ok, stale: recipe" in Path("out/small.md").read_text()
    assert not Path("store").exists()


def test_the_page_of_results_is_up_to_date(monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = Path("docs/results.md").read_text()
    assert shown == page(load_grid()), "run: python -m stages.records.board > docs/results.md"
    for row in every_row(load_grid()):
        if row["published_place"]:
            text = our_number(row, lookup(*row["published_place"]))
            assert any(row["model"] in line and text in line for line in shown.splitlines() if line.startswith("| ours: ")), row["cell"]
        else:
            assert f"{row['model']} {cells(row)[3]}" in shown, row["cell"]
    # what is to be read; tables grow with what is run
    assert sum(len(line.split()) for line in shown.splitlines() if not line.startswith("|")) < 2100


def test_the_page_of_results_has_what_each_verdict_stands_on():
    lines = page(load_grid()).splitlines()
    start = lines.index("## Every number judged") + 4
    shown = [line.split(" | ") for line in lines[start : lines.index("", start)]]
    rows = [row for row in every_row(load_grid()) if row["interval_low"] is not None]
    assert [line[5] for line in shown] == [row["verdict"] for row in rows]
    assert all(line[4].endswith("]") and (line[7] == "–") == (row["margin"] is None) for line, row in zip(shown, rows, strict=True))


def test_the_page_of_results_shows_what_is_shipped(trained):
    Path("records").mkdir()
    Path("records/looked_into.md").write_text("nothing yet\n")
    assert "## small" not in page(load_grid())
    export()
    shown = page(load_grid())
    assert re.search(r"## small\n\nRun, and printed nowhere:\n\n- web \(accuracy ↑ %\): mlp \d", shown)
    assert "## Looked into\n\nnothing yet\n" in shown


def test_the_command_line(trained):
    shown = run("store", "export", "small")
    assert shown.exit_code == 0, shown.output
    assert "1 cells exported; 0 without a run" in shown.output
    shutil.rmtree("store")
    assert "2 records imported, 0 there already" in run("store", "import").output
    shown = run("store", "verify", CELL)
    assert shown.exit_code == 0, shown.output
    assert "2 runs on cpu; as the present tree computes it" in shown.output


def test_names_of_suites_and_cells():
    grid = load_grid(ROOT / "params.yaml")
    assert grid.chosen([]) == list(grid.cells.values())
    assert grid.chosen(["embedded", "embedded/chains/mlp"]) == grid.suite("embedded")
    with pytest.raises(RecipeError, match="did you mean 'embedded'"):
        grid.chosen(["embeded"])
    with pytest.raises(RecipeError, match="did you mean 'embedded/chains/mlp'"):
        grid.chosen(["embedded/chains/mpl"])


def test_records_of_code_that_is_in_no_commit_are_not_exported_unasked(trained, monkeypatch):
    monkeypatch.setattr("stages.measurements.commit", lambda: "0123456789abcdef-dirty")
    shutil.rmtree("store")
    train()
    with pytest.raises(
        StoreError, match=f"^{CELL} is not exported: its runs were made by code that differs from commit 0123456789ab;.*--dirty$"
    ):
        export()
    assert not Path("records").exists()
    assert isinstance(run("store", "export", CELL).exception, StoreError)
    assert "1 cells exported" in run("store", "export", CELL, "--dirty").output
    assert run("store", "verify").exit_code == 0


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda r: {"digest": r["digest"]}, "lacks deterministic, measured"),
        (lambda r: r | {"deterministic": {}}, "lacks its status"),
        (lambda r: r | {"deterministic": r["deterministic"] | {"test": 0.9025}}, "it was edited or damaged"),
    ],
)
def test_a_damaged_record_of_the_store_is_one_clear_line_in_train(trained, damage, says):
    path = sorted(Path("store").rglob("record.json"))[0]
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(StoreError, match=f"^{path}: not a record .*{says}.*; delete the file and run the cell again$"):
        train()
    path.unlink()
    assert train()["status"] == "ok"


def test_an_old_record_has_no_checksum_and_is_sound(trained):
    record = {k: v for k, v in trained.records()[0].items() if k != "checksum"}
    assert record_problems(record) == []


def test_a_missing_record_is_named(trained):
    next(Path("store").rglob("record.json")).unlink()
    with pytest.raises(StoreError, match=r"is missing; `python -m stages.train small/web/mlp`"):
        export()


def test_every_shipped_record_is_sound():
    found = [read(path) for path in sorted((ROOT / "records").glob("*/*/*.json.gz"))]
    assert [line for one in found for line in problems_of(one, ROOT / "records")] == []


def test_a_dataset_is_shown_from_all_suites_own_and_shipped(trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    export()
    shown = run("board", "--dataset", "web")
    assert shown.exit_code == 0, shown.output
    assert re.findall(r"small / mlp .*(own|shipped)", shown.output) == ["own", "shipped"]
    shutil.rmtree("results")
    assert re.findall(r"small / mlp .*(own|shipped)", run("board", "--dataset", "web").output) == ["shipped"]
    # of a dataset that is not in the grid, what the papers print
    assert re.search(r"edge_transformer: GCN .* 56\.2 ± 2\.6", run("board", "--dataset", "cornell").output)
    assert "no dataset 'wob' (did you mean 'web'?)" in str(run("board", "--dataset", "wob").exception)
    assert "say one of them" in str(run("board", "small", "--dataset", "web").exception)


def test_a_table_is_shown_with_printed_numbers_whatever_was_run(trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    shown = run("table", "edge_transformer", "3")
    assert shown.exit_code == 0, shown.output
    assert "69.2 ± 5.7" in shown.output
    assert "0 of 18 numbers" in shown.output
    assert run("table", "hot").output.count("│ hot ") == 3
    for form, has in (("md", "| GCN | 56.2"), ("tex", r"\toprule"), ("csv", "edge_transformer,Table 3,GCN,cornell")):
        assert has in run("table", "edge_transformer", "3", "--format", form).output
    assert "no paper 'hots' (did you mean 'hot'?)" in str(run("table", "hots").exception)


def test_a_shipped_file_that_is_unsound_is_a_problem_and_no_stop(trained):
    export()
    Path("records/small/web/mlp.json.gz").write_bytes(b"nothing")
    found = gather(load_grid())
    assert [row["source"] for row in found.rows] == ["own"]
    assert "not an export of records" in found.problems[0]


def test_a_recipe_and_a_model_that_cannot_be_read_are_stale_and_stop_nothing(trained, monkeypatch):
    export()

    def fails(*_):
        raise OwnModelError("lab/net.py: there is no such file")

    monkeypatch.setattr("stages.own.models.run_code", fails)
    shown = run("store", "verify")
    assert (shown.exit_code, f"{CELL}: 2 runs on cpu; stale: code" in shown.output) == (0, True), shown.output
    Path(f"recipes/{CELL}.yaml").write_text("model: [")
    shown = run("store", "verify")
    assert (shown.exit_code, f"{CELL}: 2 runs on cpu; stale: recipe, code" in shown.output) == (0, True), shown.output
    assert gather(load_grid()).rows[0]["status"].startswith("ok")


@pytest.mark.parametrize("command", ["table", "compare mlp small/mlp"])
def test_a_damaged_file_is_named_where_its_numbers_are_missed(trained, command):
    path = export()
    path.write_bytes(path.read_bytes()[:100])
    shown = run(*command.split())
    assert f"{path}: not an export of records" in shown.stderr
