"""Results in the schema of evaluation results of the EvalEval Coalition."""

import json
import re
import statistics
from importlib.util import find_spec
from pathlib import Path

import pytest

from gt_bench.api.all_results import load_results
from gt_bench.reports.exchange.every_eval_ever import bounds
from gt_bench.store.shipped_files import read
from gt_bench.utils.paths import record_file
from tests.gt_bench.shipping import CELL, export, run

UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def files(trained) -> dict[str, dict]:
    """The exported files of one cell, own and shipped, by the kind of their records."""
    export()
    assert run("export", "out").output == "2 files written to out\n"
    found = [json.loads(path.read_text()) for path in Path("out").rglob("*.json")]
    return {content["source_metadata"]["additional_details"]["records"]: content for content in found}


@pytest.mark.slow
def test_files_have_the_layout_of_the_datastore_and_a_second_export_writes_the_same(files):
    paths = sorted(Path("out").rglob("*.json"))
    layout = f"out/data/gt-bench-small/graph-transformer-benchmark/mlp/{UUID4}.json"
    assert all(re.fullmatch(layout, str(path)) for path in paths)
    before = {path: path.read_bytes() for path in paths}
    run("export", "out", CELL)
    assert {path: path.read_bytes() for path in sorted(Path("out").rglob("*.json"))} == before


def test_scores_are_those_of_the_rows(files):
    assert files.keys() == {"own", "shipped"}
    row = load_results().iloc[0]
    (result,) = files["own"]["evaluation_results"]
    assert (result["evaluation_name"], result["evaluation_result_id"]) == ("web", f"{CELL}/accuracy")
    details = result["score_details"]
    assert details["score"] == row["mean"]
    assert json.loads(details["details"]["values"]) == row["values"]
    assert details["uncertainty"]["standard_deviation"] == pytest.approx(statistics.stdev(row["values"]))
    assert details["uncertainty"]["num_samples"] == 2
    metric = result["metric_config"]
    assert (metric["lower_is_better"], metric["min_score"], metric["max_score"]) == (False, 0, 1)
    assert json.loads(result["generation_config"]["additional_details"]["recipe"])["epochs"] == 6


REQUIRED = {
    "": {"evaluation_id", "source_metadata", "model_info", "eval_library"},
    "source_metadata": {"source_type", "source_organization_name", "evaluator_relationship"},
    "model_info": {"name", "id", "additional_details"},
    "model_info.additional_details": {"deployment_type", "model_availability"},
    "evaluation_results.0": {"evaluation_name", "source_data", "metric_config", "score_details"},
    "evaluation_results.0.source_data": {"dataset_name", "source_type"},
    "evaluation_results.0.metric_config": {"lower_is_better", "min_score", "max_score"},
}


def test_logs_have_the_required_keys_of_the_schema(files):
    """The required keys of version 0.3.0, and text in every `additional_details`."""
    for content in files.values():
        assert content["schema_version"] == "0.3.0"
        assert re.fullmatch(r"\d+", content["retrieved_timestamp"])
        assert content["source_metadata"]["source_type"] in ("documentation", "evaluation_run")
        for place, keys in REQUIRED.items():
            part = content
            for name in filter(None, place.split(".")):
                part = part[int(name) if name.isdigit() else name]
            assert keys <= part.keys(), place
        assert all(isinstance(text, str) for text in _details(content))


def _details(content):
    if isinstance(content, dict):
        for key, value in content.items():
            yield from value.values() if key in ("additional_details", "details") else _details(value)
    elif isinstance(content, list):
        for value in content:
            yield from _details(value)


@pytest.mark.skipif(find_spec("every_eval_ever") is None, reason="pip install every-eval-ever (Python 3.12 or newer)")
def test_the_schema_accepts_the_files(files):
    from importlib.resources import files as resources

    from jsonschema import Draft7Validator

    schema = json.loads((resources("every_eval_ever") / "schemas/eval.schema.json").read_text())
    assert schema["version"] == "0.3.0"
    for content in files.values():
        Draft7Validator(schema).validate(content)


def test_a_contributor_is_the_source(trained):
    path = export()
    run("submit", str(path), "--by", "Jane Doe")
    assert read(path).records[0].by == "Jane Doe"
    Path("results", f"{CELL}.json").unlink()
    run("export", "out")
    (content,) = [json.loads(file.read_text()) for file in Path("out").rglob("*.json")]
    source = content["source_metadata"]
    assert source["source_organization_name"] == "Jane Doe"
    assert source["additional_details"]["contributed"] == "contributed by Jane Doe; verified: schema only"


def test_bounds_of_metrics():
    expected = {"accuracy": (0, 1), "f1@jets-b": (0, 1), "mae": (0, "Infinity"), "r2": ("-Infinity", "Infinity")}
    expected["pairs-distinguished"] = (0, "Infinity")
    assert {metric: bounds(metric) for metric in expected} == expected


def test_a_damaged_file_is_reported_and_the_rest_is_written(trained):
    export()
    path = record_file(CELL)
    path.write_bytes(path.read_bytes()[:300])
    shown = run("export", "out")
    assert shown.exit_code == 1
    assert f"{path}: not an export of records" in shown.stderr
    assert shown.stdout == "1 files written to out; 1 problems\n"


def test_unknown_names_and_formats(trained):
    assert "no suite named 'nope'" in str(run("export", "out", "nope").exception)
    shown = run("export", "out", "--format", "parquet")
    assert shown.exit_code == 2
    assert not Path("out").exists()
