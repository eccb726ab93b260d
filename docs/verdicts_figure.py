"""Draws docs/verdicts.svg: python -m docs.verdicts_figure.

It shows the published value 97.46 ± 0.36 of ten runs, and five outcomes of a replication.
"""

from pathlib import Path

from gt_bench.papers.published import Published, lookup
from gt_bench.stats.verdict import judge

# mean, population deviation, runs
OUTCOMES = ((97.40, 0.36, 10), (97.15, 0.36, 10), (96.90, 0.36, 10), (97.60, 0.40, 3), (97.20, 0.0, 1))


def draw(path: Path) -> None:
    """Draws the figure.

    Raises:
        PublishedError: the number is no longer published.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    printed = lookup("polynormer", "Table 2", "Polynormer-r", "minesweeper")
    figure = Figure(figsize=(8.5, 3.4), layout="constrained")
    axes = figure.subplots()
    for position, (mean, std, runs) in enumerate(OUTCOMES):
        _outcome(axes, -position, mean, std, runs, printed)
    axes.axvline(100 * printed.mean, color="black", linewidth=1)
    axes.set(yticks=[], xlabel="ROC-AUC, %", xlim=(96.0, 99.8), ylim=(-len(OUTCOMES) + 0.4, 0.9))
    axes.text(100 * printed.mean, 0.62, f" printed: {printed.printed} of {printed.runs} runs", fontsize="small")
    figure.supxlabel(
        "line: margin · bar: 95 % prediction band of the replication's mean · "
        "dot and whiskers: our mean, 95 % interval of the difference",
        fontsize="x-small",
    )
    with rc_context({"svg.hashsalt": "verdicts"}):
        FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


def _outcome(axes, y: float, mean: float, std: float, runs: int, printed: Published) -> None:
    verdict = judge(mean / 100, std / 100, runs, printed, 10)
    low, high = (100 * bound for bound in verdict.interval)
    centre, half = 100 * printed.mean, (high - low) / 2
    axes.barh(y, 2 * half, left=centre - half, height=0.5, color="#cfe0f3")
    for side in (-1, 1):
        axes.plot([centre + side * 100 * verdict.margin] * 2, [y - 0.3, y + 0.3], color="#b05000", linewidth=1.5)
    axes.errorbar(mean, y, xerr=half, fmt="o", color="black", markersize=4, capsize=3, linewidth=1)
    word = verdict.word if runs == 10 else f"{verdict.word}, {runs} of 10 runs"
    axes.text(98.75, y, f"{word}\n{mean:.2f} ± {std:.2f}, {runs} run{'s' * (runs > 1)}", va="center", fontsize="small")


if __name__ == "__main__":
    draw(Path(__file__).with_name("verdicts.svg"))
