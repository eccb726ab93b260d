"""The runs of an experiment in memory."""

from gt_bench.tracking.mirror import Runs


def test_runs_are_found_by_their_cell():
    class Run:
        def __init__(self, name, cell):
            self.info = type("Info", (), {"run_id": name})
            self.data = type("Data", (), {"tags": {"gt.cell": cell}})

    runs = Runs([Run("1", "a"), Run("2", "b"), Run("3", "a")])
    assert [run.info.run_id for run in runs.of("a")] == ["1", "3"]
    runs.pop("1")
    runs["4"] = Run("4", "a")
    assert [run.info.run_id for run in runs.of("a")] == ["3", "4"]
    assert runs.of("c") == []
    assert sorted(runs) == ["2", "3", "4"]
