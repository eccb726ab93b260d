"""What the runs of a cell are compared with: published numbers, and what theory says of its dataset."""

from dataclasses import dataclass
from typing import Any

from gt_bench.data.registry import get_spec
from gt_bench.leaderboard.expectations import Touchstone, theory
from gt_bench.papers.published import Published, further, resolve
from gt_bench.papers.results_file import PublishedError


@dataclass(frozen=True, slots=True)
class References:
    """What a cell is compared with.

    Attributes:
        published: the published number of the recipe.
        further: other published numbers of the same runs.
        problem: why the published number was not found.
        touchstone: what theory says of the dataset.
        metric: of the dataset; only with a touchstone.
    """

    published: Published | None = None
    further: tuple[Published, ...] = ()
    problem: str | None = None
    touchstone: Touchstone | None = None
    metric: str | None = None


def references_of(cell: str, reference: dict[str, Any] | None = None, metric: str | None = None) -> References:
    """Reads what a cell is compared with.

    Args:
        cell: suite/dataset/model.
        reference: reference to a published number, as in a result.
        metric: metric of the result.
    """
    suite, dataset, _ = cell.split("/")
    published, others, problem = None, [], None
    try:
        published = resolve(reference, dataset, metric)
        others = further(reference, dataset, metric)
    except PublishedError as error:
        problem = str(error)
    touchstone = theory(suite).get(dataset)
    return References(published, tuple(others), problem, touchstone, get_spec(dataset).metric if touchstone else None)
