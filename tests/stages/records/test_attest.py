"""Records that survive a refactoring: what the present code computes bit for bit is carried over, what it does not stays stale."""

import gzip
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gt_models.baselines.mlp import MLPBaseline
from gt_models.registry import _INFOS, model_info
from stages import cli
from stages.datasets.catalog import catalog
from stages.datasets.packed import PackedHeader, write_header
from stages.datasets.spec import DatasetSpec
from stages.engine.loop import Run
from stages.params import load_grid
from stages.records.attest import StaysStale, attest
from stages.records.board import board
from stages.records.carried import content_digest, section_of, with_checksum
from stages.records.shipped import Shipped, problems_of, read, record_problems, write
from stages.records.staleness import standing
from stages.records.transfer import export_cell, import_records, verify
from stages.store import Store, StoreError, sealed
from stages.train import train_cell

CELL, COMMIT = "small/web/mlp", "5" * 40


@pytest.fixture
def shipped(project, monkeypatch) -> Shipped:
    """One cell of two runs, trained and exported by the code as it is."""
    spec = DatasetSpec(name="web", family="test", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    folder = Path("data/packed/web")
    header = PackedHeader.model_validate_json((folder / "header.json").read_bytes())
    write_header(folder, header.model_copy(update={"provenance": {"spec": spec.digest}}))
    project.recipe()
    train()
    return read(export())


def train():
    grid = load_grid()
    return train_cell(grid.find(CELL), grid)


def export() -> Path:
    return export_cell(load_grid().find(CELL))


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments))


@pytest.fixture
def other_code(monkeypatch):
    """Other code as the digest sees it; what it computes is the same."""
    for place in ("stages.fingerprint", "stages.own.models"):
        monkeypatch.setattr(f"{place}.code_digest", lambda modules: "0" * 64)


@pytest.fixture
def other_numbers(monkeypatch):
    """The model's outputs are scaled: another loss from the first epoch on."""
    forward = MLPBaseline.forward
    monkeypatch.setattr(MLPBaseline, "forward", lambda self, batch: 1.5 * forward(self, batch))


def test_other_code_that_finds_the_same_carries_a_cell_over(shipped, other_code, monkeypatch):
    before = shipped.path.read_bytes()
    assert standing(shipped, load_grid()).stale == ["code"]
    shown = run("store", "attest", CELL)
    assert shown.exit_code == 0, shown.output
    assert f"{CELL}: carried over (1 of 2 recomputed) by commit 0123456789ab" in shown.output
    new = read(shipped.path)
    # the records themselves are as they were
    assert (new.records, new.result["runs"]) == (shipped.records, shipped.result["runs"])
    cheapest = min(shipped.records, key=lambda r: r["measured"]["seconds"])
    assert new.carried["recomputed"] == [{"seed": cheapest["deterministic"]["seed"], "sha256": content_digest(cheapest)}]
    assert standing(new, load_grid()).text == "as the present tree computes it"
    assert problems_of(new) == []
    assert verify([new]) == []
    # the store is as it was, and no work is left behind
    assert len(list(Path("store").glob("??/*/record.json"))) == 2
    assert not list(Path("store/attest").glob("??/*"))

    row = board("small", load_grid())[0]
    assert (row["status"], row["carried_over"]) == ("ok", "carried over (1 of 2 recomputed)")
    assert "carried over by commit 0123456789ab" in run("store", "verify").output

    # import and train: nothing is computed, and the mark is in the record
    for folder in ("store", "results"):
        shutil.rmtree(folder)
    shown = run("store", "import")
    assert "4 records imported, 0 there already; 1 results written" in shown.output
    monkeypatch.setattr(Run, "train", lambda *_: pytest.fail("a run was repeated"))
    assert train()["runs"] == [r["digest"] for r in new.now().records]
    stored = Store().get(new.now().records[0]["digest"])
    assert stored["carried_over"]["from"]["digest"] == shipped.records[0]["digest"]
    assert record_problems(stored) == []
    # the mark survives export
    content = shipped.path.read_bytes()
    shipped.path.unlink()
    assert export().read_bytes() == content != before


def test_attested_again_it_is_recomputed_and_more_runs_are_added(shipped, other_code):
    run("store", "attest")
    assert "1 as the present tree computes it" in run("store", "attest").output  # not named: nothing is computed
    before = shipped.path.read_bytes()
    assert f"{CELL}: carried over (1 of 2 recomputed)" in run("store", "attest", CELL).output
    assert shipped.path.read_bytes() == before
    assert f"{CELL}: carried over (2 of 2 recomputed)" in run("store", "attest", CELL, "--runs", "2").output
    assert [one["seed"] for one in read(shipped.path).carried["recomputed"]] == [0, 1]


def test_a_mark_that_does_not_hold_is_said(shipped, other_code, monkeypatch):
    attested(shipped)
    before = shipped.path.read_bytes()
    forward = MLPBaseline.forward
    monkeypatch.setattr(MLPBaseline, "forward", lambda self, batch: 1.5 * forward(self, batch))
    shown = run("store", "attest", CELL, "--runs", "2")
    assert shown.exit_code == 1
    assert f"{CELL}: its mark does not hold here: seed" in shown.output
    assert shipped.path.read_bytes() == before


def test_other_code_that_finds_something_else_leaves_a_cell_stale(shipped, other_code, other_numbers):
    before = shipped.path.read_bytes()
    shown = run("store", "attest")
    assert shown.exit_code == 1
    said = r"small/web/mlp: stays stale: seed [01]: train_loss of epoch 1 differs first: ([\d.]+) before, ([\d.]+) now \(by ([\d.e-]+)\)"
    one, other, by = map(float, re.search(said, shown.output).groups())
    assert by == pytest.approx(abs(one - other), rel=1e-2)
    assert "0 carried over; 0 as the present tree computes it; 1 not carried over" in shown.output
    assert shipped.path.read_bytes() == before
    assert standing(read(shipped.path), load_grid()).stale == ["code"]
    assert len(list(Path("store").glob("??/*/record.json"))) == 2


def test_a_recipe_that_says_the_same_in_other_words(project, shipped):
    project.recipe(model={"name": "mlp", "hidden_dim": 8, "num_layers": 2, "dropout": 0.2, "activation": "relu"})
    assert standing(shipped, load_grid()).stale == ["recipe"]
    new = attest(shipped, load_grid(), COMMIT)
    assert standing(new, load_grid()).stale == []
    assert new.result["recipe"]["model"]["activation"] == "relu"
    assert new.records == shipped.records
    project.recipe(model={"name": "mlp", "hidden_dim": 8, "num_layers": 2, "dropout": 0.3})
    with pytest.raises(StaysStale, match=r"^seed \d: train_loss of epoch 1 differs first"):
        attest(shipped, load_grid(), COMMIT)


def test_a_renamed_model_of_a_reduced_cell(project, shipped, monkeypatch):
    project.recipe(limits={"small": {"epochs": 2, "seeds": 1}})
    train()
    reduced = read(export_cell(load_grid().find(CELL), replace=True))
    monkeypatch.setitem(_INFOS, "mlp-released", model_info("mlp"))
    project.recipe(model={"name": "mlp-released", "hidden_dim": 8, "num_layers": 2, "dropout": 0.2})
    assert standing(reduced, load_grid()).stale == ["recipe"]
    new = attest(reduced, load_grid(), COMMIT)  # as it was cut then, not as params.yaml cuts it now
    assert standing(new, load_grid()).stale == []
    assert new.now().records[0]["deterministic"]["recipe"]["model"]["name"] == "mlp-released"
    assert (new.records, new.result["reduced"]) == (reduced.records, ["1 of 2 seeds", "2 of 6 epochs"])


def test_one_bit_is_enough_to_stay_stale(shipped, other_code):
    record = json.loads(json.dumps(shipped.records[0]))
    record["deterministic"]["epochs"]["val_loss"][3] *= 1 + 2**-52
    cheaper = record | {"measured": record["measured"] | {"seconds": 0.0}}
    with pytest.raises(StaysStale, match=r"seed 0: val_loss of epoch 4 differs first: .* \(by \d(\.\d+)?e-1[67]\)"):
        attest(Shipped(shipped.path, shipped.result, [cheaper, shipped.records[1]]), load_grid(), COMMIT)


def test_on_another_processor_the_older_code_is_run_beside(shipped, other_code, monkeypatch):
    """Records of a machine whose last bits are others: old and new code are compared here."""
    here = {r["deterministic"]["seed"]: r for r in shipped.records}
    for record in shipped.records:
        Store("older").put(json.loads(json.dumps(record)))
        record["deterministic"]["epochs"]["val_loss"][3] *= 1 + 2**-52
        record |= sealed(record)
        record["measured"]["environment"]["cpu"] = "another"
    write(shipped)
    assert problems_of(shipped) == []
    shown = run("store", "attest")
    assert "val_loss of epoch 4 differs first" in shown.output
    assert "(also: cpu another before, " in shown.output
    shown = run("store", "attest", "--beside", "nothing")
    assert "stays stale: nothing holds none of its runs: train the cell there" in shown.output
    shown = run("store", "attest", "--beside", "older")
    assert shown.exit_code == 0, shown.output
    new = read(shipped.path)
    assert problems_of(new) == []
    (found,) = new.carried["recomputed"]
    assert found["sha256"] not in {content_digest(r) for r in here.values()}
    assert "computed by the older code and by this one on" in run("store", "verify").output
    assert board("small", load_grid())[0]["carried_over"] == "carried over (1 of 2 recomputed)"
    # numbers that differ are not excused
    path = Store("older").folder(shipped.records[0]["digest"]) / "record.json"
    record = json.loads(path.read_text())
    record["deterministic"]["epochs"]["train_loss"][0] += 1.0
    record["measured"]["seconds"] = 0.0
    path.write_text(json.dumps(sealed(record)))
    write(shipped)
    assert "stays stale: seed 0: train_loss of epoch 1 differs first" in run("store", "attest", "--beside", "older").output


def test_another_device_and_missing_data_leave_it_stale_without_computing(shipped, other_code, monkeypatch):
    monkeypatch.setattr(Run, "train", lambda *_: pytest.fail("a run was computed"))
    elsewhere = [r | {"measured": r["measured"] | {"device": "NVIDIA A100"}} for r in shipped.records]
    with pytest.raises(StaysStale, match="it was computed on NVIDIA A100, and here is cpu"):
        attest(Shipped(shipped.path, shipped.result, elsewhere), load_grid(), COMMIT)
    shutil.rmtree("data")
    with pytest.raises(StaysStale, match="web"):
        attest(shipped, load_grid(), COMMIT)


def attested(shipped: Shipped) -> Shipped:
    new = attest(shipped, load_grid(), COMMIT)
    write(new)
    return new


def edited(path: Path, change, seal: bool) -> None:
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content["carried"])
    if seal:
        content["carried"] = with_checksum(content["carried"])
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def _first(carried: dict) -> dict:
    return next(iter(carried["runs"].values()))


@pytest.mark.parametrize(
    ("change", "seal", "says"),
    [
        (lambda c: c.update(commit="7" * 40), False, "it does not have the checksum that it names"),
        (lambda c: c["recomputed"].append({"seed": 1, "sha256": "0" * 64}), False, "it does not have the checksum that it names"),
        (lambda c: c["recomputed"][0].update(sha256="0" * 64), True, "found something else when it was recomputed"),
        (lambda c: c.update(recomputed=[]), True, "it names no recomputed run"),
        (lambda c: c["recomputed"][0].update(seed=9), True, "no record has the seed 9"),
        (lambda c: c.pop("commit"), False, "it lacks commit"),
        (lambda c: c.update(commit=None), True, "it names no commit"),
        (lambda c: c["runs"].update({"f" * 64: _first(c)}), True, "no record has the digest ffff"),
        (lambda c: _first(c)["digests"].update(code="1" * 64), True, "its runs are not of one state of the code"),
        (lambda c: [r["digests"].update(code="1" * 64) for r in c["runs"].values()], True, "its contents give the digest"),
        (lambda c: _first(c)["recipe"]["optimizer"].update(lr=1.0), True, "its contents give the digest"),
        (lambda c: _first(c).update(digests=None), True, "its runs are not of one state of the code"),
        (lambda c: c.update(runs=5), True, "its runs have no digests"),
    ],
)
def test_an_edited_attestation_is_refused_in_one_line(shipped, other_code, change, seal, says):
    attested(shipped)
    edited(shipped.path, change, seal)
    (line,) = problems_of(read(shipped.path))
    assert line.startswith(f"{shipped.path}: its attestation was edited or damaged: ")
    assert says in line
    shutil.rmtree("store")
    with pytest.raises(StoreError, match="nothing is imported"):
        import_records([read(shipped.path)])
    assert not Path("store").exists()
    for command in (("store", "verify"), ("store", "attest")):
        shown = run(*command)
        assert shown.exit_code == 1
        assert says in shown.output


def test_a_mark_in_the_store_that_was_edited_is_found(shipped, other_code):
    new = attested(shipped)
    shutil.rmtree("store")
    import_records([new])
    path = Store().folder(new.now().records[0]["digest"]) / "record.json"
    path.write_text(path.read_text().replace(COMMIT, "7" * 40))
    assert any(f"{path}: its mark of being carried over was edited or damaged" in line for line in verify([new]))


def test_a_newer_mark_takes_the_place_of_an_older_one(shipped, other_code):
    older = attested(shipped)
    shutil.rmtree("store")
    import_records([older])
    newer = attest(shipped, load_grid(), "6" * 40, runs=2)
    import_records([newer])
    digests = [r["digest"] for r in newer.now().records]
    marked = [Store().get(d) for d in digests if "carried_over" in Store().get(d)]
    assert marked
    assert {r["carried_over"]["commit"] for r in marked} == {"6" * 40}
    mixed = [older.now().records[0], newer.now().records[1]]
    with pytest.raises(StoreError, match="carried over by two attestations"):
        section_of(mixed)


def test_a_search_is_carried_over_with_its_cell_and_does_not_start_anew(project, shipped, monkeypatch):
    from stages.tune import tune_cell

    search = {"trials": 2, "sampler": "grid", "space": {"model.dropout": {"choices": [0.0, 0.5]}}}
    project.recipe(search=search)
    grid = load_grid()
    chosen = tune_cell(grid.find(CELL), grid)
    train()
    exported = read(export())
    assert len(exported.trials) == 2
    for place in ("stages.fingerprint", "stages.own.models"):
        monkeypatch.setattr(f"{place}.code_digest", lambda modules: "0" * 64)
    new = attested(exported)
    assert len(new.carried["runs"]) == 4
    for folder in ("store", "studies", "tuned", "results"):
        shutil.rmtree(folder)
    import_records([read(new.path)])
    monkeypatch.setattr(Run, "train", lambda *_: pytest.fail("a run was repeated"))
    assert tune_cell(grid.find(CELL), grid).decisive() == chosen.decisive()
    assert train()["runs"] == [r["digest"] for r in new.now().records]
    assert read(export()) == new


def test_a_mark_needs_a_commit(shipped, other_code, monkeypatch):
    monkeypatch.setattr("stages.measurements.commit", lambda: "0123456789abcdef-dirty")
    assert "the code differs from commit 0123456789ab" in str(run("store", "attest").exception)
    assert run("store", "attest", "--dirty").exit_code == 0
    monkeypatch.setattr("stages.measurements.commit", lambda: None)
    assert "there is no commit to name" in str(run("store", "attest", "--dirty").exception)


class Parts:
    """A stub of the experiment that attestation runs: it covers parts 3 and 1 of a run of three. Epochs play the role of parts."""

    def __init__(self, record):
        self.record = record
        self.curves = {name: [curve[2], curve[0]] for name, curve in record["deterministic"]["epochs"].items()}
        self.curves["epoch"], self.status = [1, 2], "ok"

    def run(self, seed):
        found = {**self.record["deterministic"], "epochs": self.curves, "test": 0.0, "status": self.status}
        now = sealed({**self.record, "digest": "e" * 64, "deterministic": found})
        Store("store/attest").put(now)
        return now, None


@pytest.fixture
def of_parts(shipped, other_code, monkeypatch) -> Parts:
    first = min(shipped.records, key=lambda r: r["measured"]["seconds"])
    assert len(first["deterministic"]["epochs"]["epoch"]) >= 3
    parts = Parts(first)
    monkeypatch.setattr("stages.records.attest._Present.protocol", SimpleNamespace(parts=3, UNIT="rounds"))
    monkeypatch.setattr("stages.records.attest._Present._of_parts", lambda self, count: parts if count == 2 else None)
    return parts


def test_of_a_run_of_many_parts_a_few_may_do(of_parts, shipped, monkeypatch):
    shown = run("store", "attest", CELL, "--parts", "2")
    assert shown.exit_code == 0, shown.output
    count = len(of_parts.record["deterministic"]["epochs"]["epoch"])
    assert "2 of its 3 rounds; all took" in shown.output
    assert f"{CELL}: carried over (1 of 2 recomputed, 2 of {count} parts)" in shown.output
    new = read(shipped.path)
    seed = of_parts.record["deterministic"]["seed"]
    assert new.recomputed == [{"seed": seed, "sha256": content_digest(of_parts.record, [2, 0]), "parts": [2, 0]}]
    assert problems_of(new) == []
    assert standing(new, load_grid()).text == "as the present tree computes it"
    assert f"seed {seed} recomputed, bit for bit (2 of its parts)" in run("store", "verify").output
    # the mark is in the store after an import, and in the file again after an export
    for folder in ("store", "results"):
        shutil.rmtree(folder)
    import_records([new])
    monkeypatch.setattr(Run, "train", lambda *_: pytest.fail("a run was repeated"))
    assert train()["runs"] == [r["digest"] for r in new.now().records]
    assert read(export()) == new


def test_a_part_that_is_found_otherwise_is_named(of_parts, shipped):
    before = shipped.path.read_bytes()
    value = of_parts.curves["train_loss"][0]
    of_parts.curves["train_loss"][0] = value + 1
    shown = run("store", "attest", CELL, "--parts", "2")
    assert shown.exit_code == 1
    assert f"part 3: train_loss differs first: {value} before, {value + 1} now (by 1)" in shown.output
    assert shipped.path.read_bytes() == before


@pytest.mark.parametrize(("count", "status"), [(0, "oom"), (1, "ok"), (2, "timed-out")])
def test_a_run_that_ends_without_its_parts_carries_nothing_over(of_parts, shipped, count, status):
    before = shipped.path.read_bytes()
    of_parts.curves, of_parts.status = {name: curve[:count] for name, curve in of_parts.curves.items()}, status
    shown = run("store", "attest", CELL, "--parts", "2")
    assert shown.exit_code == 1
    assert f"{status} after {count} of 2 parts" in shown.output
    assert shipped.path.read_bytes() == before


def test_a_whole_run_takes_the_place_of_its_parts_and_not_the_reverse(of_parts, shipped):
    run("store", "attest", CELL, "--parts", "2")
    assert "carried over (1 of 2 recomputed)" in run("store", "attest", CELL).output
    whole = read(shipped.path)
    assert [sorted(r) for r in whole.recomputed] == [["seed", "sha256"]]
    run("store", "attest", CELL, "--parts", "2")
    assert read(shipped.path) == whole


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parts": [2, 1]}, "found something else when it was recomputed"),
        ({"parts": [2, 1000]}, "has no such parts"),
        ({"parts": []}, "has no such parts"),
        ({"parts": [0, 0]}, "has no such parts"),
        ({"sha256": "0" * 64}, "found something else when it was recomputed"),
    ],
)
def test_an_attestation_of_parts_that_do_not_hold_is_refused(of_parts, shipped, change, says):
    run("store", "attest", CELL, "--parts", "2")
    new = read(shipped.path)
    section = {**new.carried, "recomputed": [{**new.recomputed[0], **change}]}
    write(Shipped(new.path, new.result, new.records, new.origins, carried=with_checksum(section)))
    (line,) = problems_of(read(new.path))
    assert says in line
