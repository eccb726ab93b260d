"""The three columns of a model: default, tuned, and tuned and ensembled, with the budget of each."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gt_bench.config.verdict_settings import Rules
from gt_bench.papers.units import PERCENT, difference_text, mean_and_std, metric_label, number_text
from gt_bench.stats.paired import Paired, paired
from gt_bench.stats.welch import STD_DDOF
from gt_bench.utils.json_types import Settings
from gt_bench.utils.terminal import print_table

DEFAULT, TUNED, ENSEMBLED = "default", "tuned", "tuned and ensembled"
HEADS = ("settings", "test", "validation", "against default [95 %]", "trials", "runs", "hours", "parameters")


@dataclass(frozen=True)
class TunedColumn:
    """One of the columns.

    Attributes:
        name: DEFAULT, TUNED or ENSEMBLED.
        values: {seed: test metric}.
        validation: validation metric, mean over the seeds.
        trials: number of trials of the search.
        runs: number of runs that were trained besides trials.
        hours: hours of training of these trials and runs, by their records.
        parameters: number of parameters; of all members of an ensemble together, the largest over the seeds.
    """

    name: str
    values: Mapping[int, float]
    validation: float
    trials: int
    runs: int
    hours: float
    parameters: int

    @property
    def mean(self) -> float:
        """Test metric, mean over the seeds."""
        return statistics.fmean(self.values.values())

    @property
    def std(self) -> float:
        """Population standard deviation over the seeds, as in leaderboards."""
        assert STD_DDOF == 0
        return statistics.pstdev(self.values.values())


@dataclass(frozen=True)
class TunedColumns:
    """The columns of a model on a dataset.

    Attributes:
        metric: name of the metric.
        direction: "max" or "min".
        columns: default, tuned, tuned and ensembled.
        weights: {seed: {member: its weight}}.
        rules: settings of the tests.
    """

    metric: str
    direction: str
    columns: Sequence[TunedColumn]
    weights: Mapping[int, Mapping[str, float]]
    rules: Rules | None = None

    def against_default(self, column: TunedColumn) -> Paired | None:
        """Compares a column with the default over their common seeds; positive: better than the default."""
        default = self.columns[0]
        common = sorted(column.values.keys() & default.values.keys())
        if column is default or not common:
            return None
        first, second = ([side.values[seed] for seed in common] for side in (column, default))
        return paired(first, second, self.direction, self.rules)

    def content(self) -> Settings:
        """Returns the columns as JSON."""
        rows = []
        for column in self.columns:
            paired = self.against_default(column)
            rows.append(
                {
                    "name": column.name,
                    "mean": column.mean,
                    "std": column.std,
                    "values": {str(seed): value for seed, value in column.values.items()},
                    "validation": column.validation,
                    "trials": column.trials,
                    "runs": column.runs,
                    "hours": column.hours,
                    "parameters": column.parameters,
                    "difference_to_default": paired and paired.difference,
                    "interval": paired and paired.interval,
                }
            )
        weights = {str(seed): dict(members) for seed, members in self.weights.items()}
        return {"metric": self.metric, "direction": self.direction, "columns": rows, "weights": weights}

    def texts(self) -> list[list[str]]:
        """Returns the texts of each row, in the order of `HEADS`."""
        rows, percent = [], self.metric in PERCENT
        for column in self.columns:
            paired = self.against_default(column)
            difference = difference_text(paired.difference, paired.interval, percent) if paired else "–"
            rows.append(
                [
                    column.name,
                    mean_and_std(column.mean, column.std if len(column.values) > 1 else None, percent),
                    number_text(column.validation, percent),
                    difference,
                    str(column.trials),
                    str(column.runs),
                    f"{column.hours:.3g}",
                    f"{column.parameters:,}",
                ]
            )
        return rows

    def note(self) -> str:
        """Returns how the ensembles were chosen, and their sizes."""
        sizes = [len(members) for members in self.weights.values()]
        size = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        candidates = self.columns[-1].runs // max(1, len(self.weights))
        return (
            "ensembles: greedy selection with replacement on validation predictions, per seed; "
            f"{size} of {candidates} candidates have a weight. Differences above 0 are better than the default"
        )

    def title(self) -> str:
        """Returns the title of the table."""
        return f"{metric_label(self.metric)}: default, tuned, tuned and ensembled"


def show(columns: TunedColumns) -> None:
    """Prints the columns, one per line, as wide as the terminal."""
    right = ("test", "validation", "trials", "runs", "hours", "parameters")
    print_table(HEADS, columns.texts(), wrapped=("settings", HEADS[3]), right=right, title=columns.title())
