"""The file of jobs that were submitted to Slurm."""

from gt_bench.scheduling.job_registry import Submitted, register, registered
from gt_bench.store.run_store import Store


def test_registered_jobs_are_read_and_an_incomplete_line_is_skipped(tmp_path):
    store = Store(tmp_path)
    assert registered(store) == []
    (tmp_path / "sweep").mkdir()
    first, second = (Submitted(f"{number}_0", str(tmp_path / "lines"), 2, "small/web/mlp", (0, 1)) for number in (7, 8))
    register(store, [first])
    with (tmp_path / "sweep" / "submitted.jsonl").open("a") as file:
        file.write('{"id": "9_0", "li\n{"pid": 3}\n')
    register(store, [second])
    assert registered(store) == [first, second]
    assert (second.array, second.runs) == ("8", [("small/web/mlp", 0), ("small/web/mlp", 1)])
    assert second.output() == []
    (tmp_path / "lines").write_text('{"seed": 0, "outcome": "stored"}\n{"seed": 1, "outc')
    assert second.output() == [{"seed": 0, "outcome": "stored"}]
