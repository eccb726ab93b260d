"""The words of reports. They are made here from values, and nothing reads them again."""

from gt_bench.records.state import CellState, Ended


def status_of(state: CellState) -> str:
    """Returns the status of a row, such as `ok 3/5 (1 diverged, 1 oom), stale: data`."""
    return ", ".join(
        [
            _base_of(state),
            *(["modified"] if state.modified else []),
            *([f"stale: {', '.join(state.stale)}"] if state.stale else []),
        ]
    )


def _base_of(state: CellState) -> str:
    if state.undefined:
        return "no number"
    if state.complete:
        return "ok"
    if state.done:
        counts = [f"{count} {status}" for status, count in sorted(state.failed.items())]
        counts += [f"{state.unreadable} unreadable"] if state.unreadable else []
        return f"ok {state.done}/{state.wanted}" + (f" ({', '.join(counts)})" if counts else "")
    return Ended.UNREADABLE if state.unreadable and state.ended == Ended.OK else state.ended
