"""Live tracking gives the same content as tracking from records, also if the training was killed and resumed."""

import pytest

from gt_bench.tracking.live_worker import follow
from gt_bench.tracking.mirror import Mirror
from gt_bench.tracking.sync import complete
from tests.gt_bench.cells import changed, make_record, make_result
from tests.gt_bench.tracking.conftest import ET, SUITE, Told, snapshot, start, train

pytestmark = pytest.mark.slow


def test_live_equals_rebuilt(store, world, rebuilt):
    uri = store("live")
    for result, make in zip(world.results[:2], (start, Told)):
        records = world.by_cell[result.cell]
        live = make(result, records[0])
        for record in records:
            train(live, record)
            live.finish_seed(record)
        live.close(result, records)
        if make is Told:
            assert follow(live.lines) == 0
    live = snapshot(uri)
    assert live == {k: v for k, v in rebuilt.items() if "texas" not in k[1]}
    complete(SUITE, world.results, world.records)
    assert snapshot(uri) == rebuilt


def test_killed_training_is_marked_resumed_and_completed(store, world, rebuilt):
    uri = store("killed")
    result, (record, other) = world.results[0], world.by_cell[ET]
    live = Told(result, record)
    train(live, record, range(1, 9))
    assert follow([*live.lines, live.lines[-1][:20]]) == 0
    runs = Mirror(uri, SUITE).runs.values()
    assert {r.info.status for r in runs} == {"KILLED"}
    assert sorted(r.data.tags["gt.kind"] for r in runs) == ["cell", "run"]
    # resumes from a checkpoint two epochs back
    live = Told(result, record)
    train(live, record, range(7, 13))
    live.finish_seed(record)
    live.close(result, [record, other])
    assert follow(live.lines) == 0
    assert snapshot(uri) == {k: v for k, v in rebuilt.items() if k[1] == ET}
    assert {r.info.run_id for r in runs} < set(Mirror(uri, SUITE).runs), (
        "the runs of before were completed, not replaced"
    )


def test_a_run_ends_after_it_began(store, world):
    uri = store("moments")
    record = make_record(ET, 0)
    record = changed(record, measured={"seconds": 0.3, "finished": record.measured.started})  # within one second
    result = make_result(ET, [record])
    live = Told(result, record)
    train(live, record)
    live.finish_seed(record)
    live.close(result, [record])
    assert follow(live.lines) == 0
    assert all(run.info.end_time > run.info.start_time for run in Mirror(uri, SUITE).runs.values())
    uri = store("moments-rebuilt")
    complete(SUITE, [result], {record.digest: record})
    assert [run.info.end_time - run.info.start_time for run in Mirror(uri, SUITE).runs.values()] == [300, 300]
