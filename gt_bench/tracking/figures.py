"""Figures of a cell, drawn from its records: equal records give equal bytes."""

import io
import math
from collections.abc import Sequence

from gt_bench.records.run import RunRecord


def learning_curves(title: str, records: Sequence[RunRecord]) -> bytes:
    """Return a PNG with training loss (left) and validation metric (right) by epoch, one line per run.

    The best epoch is marked.
    """
    # the object interface needs no global state and no display, unlike pyplot
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # other code of the process may have set a style
    with style.context("default", after_reset=True):
        figure = Figure(figsize=(9, 3.2), dpi=100, layout="constrained")
        left, right = figure.subplots(1, 2)
        for record in records:
            run = record.run
            curves = run.epochs
            loss = [math.nan if v is None else v for v in curves["train_loss"]]
            (line,) = left.plot(curves["epoch"], loss, linewidth=1, label=f"seed {run.seed}")
            evaluated = [(e, v) for e, v in zip(curves["epoch"], curves["val"]) if v is not None]
            right.plot(*zip(*evaluated) if evaluated else ([], []), linewidth=1, color=line.get_color())
            if run.best_epoch is not None and run.val is not None:
                right.plot([run.best_epoch], [run.val], "o", markersize=4, color=line.get_color())
        left.set(xlabel="epoch", ylabel="training loss")
        right.set(xlabel="epoch", ylabel=f"validation {records[0].run.metric}" if records else "validation")
        if 0 < len(records) <= 10:
            left.legend(fontsize="x-small", ncols=2)
        figure.suptitle(title, fontsize="medium")
        file = io.BytesIO()
        FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    return file.getvalue()
