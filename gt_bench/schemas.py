"""Keys of the JSON files of the benchmark: record of a run, result of a cell, row of a leaderboard.

These are the keys for whoever reads the code, and for the type checker. What a file from elsewhere really holds is
checked where it comes in: `gt_bench.store.shipped_files` for records and results,
`gt_bench.leaderboard.export.rows_in` for rows, `gt_bench.encodings.cache` for headers of encodings.
"""

from typing import Any, NotRequired, Required, TypeAlias, TypedDict

from gt_bench.records.state import CellState

# any value of JSON
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
# settings as YAML and JSON have them, nested: their keys are those of a recipe, of a model's constructor or of an
# encoding
Settings = dict[str, Any]
# by name, an entry per epoch: `epoch` has whole numbers, every other curve numbers, and None where nothing was measured
Curves = dict[str, list[Any]]


class Digests(TypedDict):
    """sha256 of what decides a run, besides its seed, split and versions.

    `files`: of a user's own model, the file and the files of its folder that it imports; drawn at random for a class of
    a notebook or of the running script, whose runs are computed each time. `modified`: of the
    code, where it computes other golden values than those of its versions: a change whose version was not raised.
    `metric`: of the files of user-supplied metrics. `last_batch`: "joined" where one graph is left over in training and
    joins the batch before it; runs from before it
    did have other keys.
    """

    recipe: str
    data: str
    encodings: str
    files: NotRequired[str]
    modified: NotRequired[str]
    metric: NotRequired[str]
    last_batch: NotRequired[str]


class Ran(TypedDict):
    """The deterministic part of a record: the settings of a run, and its results.

    `versions`: by component (model, task, trainer, ...) the declared version of what computed it
    (gt_bench/utils/versions.py). `epochs`: the curves by name, an entry per epoch (None where it was not measured);
    `val`, `test`: the metric at the best epoch, raw units.
    """

    status: str
    error: str | None
    seed: int
    split: int
    recipe: Settings
    digests: Digests
    versions: dict[str, int]
    dataset: str
    metric: str
    direction: str
    parameters: int
    epochs: Curves
    best_epoch: int | None
    val: float | None
    test: float | None
    test_metrics: dict[str, float]


class Environment(TypedDict, total=False):
    """Machine, commit and package versions of a run, which are not part of its digest.

    Computed by `gt_bench.runtime.environment.environment`. A key is missing in records that are older than it.
    """

    python: Required[str]
    system: Required[str]
    cpu: str
    cpu_capability: str
    blas: dict[str, str]
    cores: int | None
    device: str
    allocator: str
    commit: str | None
    torch: str


class StoredArray(TypedDict):
    """An array of an encoding: what its rows belong to (node, pair, edge, graph), and the digest of its bytes."""

    rows: str
    shape: list[int]
    dtype: str
    sha256: str


class ComputedBy(TypedDict):
    """Libraries that decide the last digits of an encoding.

    `flags`: number of graphs by flag, where their vectors are not unique.
    """

    computed_by: dict[str, str]
    flags: NotRequired[dict[str, int]]


class EncodingHeader(TypedDict):
    """The header of the file of an encoding: dataset, complete arguments, data and algorithm decide the rest.

    `on_the_fly`: why there is a note instead of arrays; `sha256`: of all the other keys.
    """

    dataset: str
    encoding: str
    arguments: Settings
    data: str
    algorithm: str
    digest: NotRequired[str]
    on_the_fly: NotRequired[str]
    arrays: NotRequired[dict[str, StoredArray]]
    computed_by: NotRequired[dict[str, str]]
    flags: NotRequired[dict[str, int]]
    sha256: NotRequired[str]


class StaticReport(TypedDict):
    """Effects of padding (`batch.static`) and compilation (`compile`) in a run.

    `sizes`: graphs, nodes, edges and pairs of each padded size. `batches`: number of batches by what was done: padded,
    unpadded (they fit no size), one size. `compile_seconds` is part of the seconds of the run. `not_replayed`: number
    of compiled graphs that `reduce-overhead` runs on a GPU without replay.
    """

    mode: str | None
    compilations: int
    compile_seconds: float
    sizes: list[list[int]]
    batches: dict[str, int]
    not_replayed: NotRequired[int]


class Measured(TypedDict):
    """The measured part of a record: the cost of a run on the machine that computed it.

    Memory in MiB, moments in ISO 8601 to the second.
    """

    started: str
    finished: str
    seconds: float
    train_seconds_per_epoch: float
    eval_seconds_per_epoch: float
    peak_memory_mib: float
    memory_limit_mib: float
    time_limit_seconds: float | None
    device: str
    environment: Environment
    # hash of the code that computed it (gt_bench/utils/versions.py): information
    code: str
    # missing in records that are older than these measurements
    threads: NotRequired[int]
    processes: NotRequired[int]
    forms: NotRequired[dict[str, dict[str, list[str]]]]
    arguments: NotRequired[Settings]
    usage: NotRequired[dict[str, list[float]]]
    encodings: NotRequired[dict[str, ComputedBy]]
    static: NotRequired[StaticReport]


class StoredPredictions(TypedDict, total=False):
    """Outputs of a run on validation and test: `sha256` and `bytes` of the file, or why there is none.

    `left_out_mib`: size of the outputs if it is above the limit `run.predictions`.
    """

    sha256: str
    bytes: int
    left_out: str
    left_out_mib: float


class Record(TypedDict):
    """The record of a run, `store/<first two digits>/<digest>/record.json`.

    `legacy_key`: its digest while keys contained the text of the code. `verified`: "schema only" or "recomputed" of a
    contributed record; records of the maintainers have none. `by`: who computed it, if stated (docs/submit.md).
    """

    schema: int
    digest: str
    deterministic: Ran
    measured: Measured
    checksum: NotRequired[str]
    predictions: NotRequired[StoredPredictions]
    legacy_key: NotRequired[str]
    by: NotRequired[str]
    verified: NotRequired[str]


class Origins(TypedDict, total=False):
    """Digests of the sources of data and encodings of a shipped cell, for machines without the data."""

    data: str
    spec: str
    encodings: str | None
    algorithms: dict[str, str] | None


class EnsembleSummary(TypedDict):
    """Test metric of a model with defaults and of the ensembles of its search, and hours of training of each.

    `trials`: of the search; missing in older results.
    """

    mean: float
    std: float
    runs: int
    hours: float
    tuned_hours: float
    trials: NotRequired[int]
    default_mean: float
    default_std: float
    default_hours: float


class SearchSummary(TypedDict):
    """Summary of a search: trials by state, the best validation value, and the search space.

    `objectives` and `pareto`: of a search with several objectives, the trials that no other one dominates.
    `warm_starts`: trials whose values came from recipes and records. `ensemble`: of `gt-bench try --ensemble`.
    """

    trials: int
    states: dict[str, int]
    used: NotRequired[int]
    best_validation: NotRequired[float | None]
    keys: NotRequired[list[str]]
    space: NotRequired[str]
    objectives: NotRequired[list[str]]
    pareto: NotRequired[list[dict[str, float]]]
    warm_starts: NotRequired[int]
    ensemble: NotRequired[EnsembleSummary]


class Imported(TypedDict):
    """Source of an imported result. `stale`: what the current code would compute differently."""

    commit: str | None
    stale: list[str]


class Named(TypedDict):
    """Names of a cell."""

    cell: str
    suite: str
    dataset: str
    model: str


class Result(Named):
    """The result of a cell, `results/<cell>.json`.

    `runs` names the records by digest, in the order of `seeds`.
    """

    status: str
    reason: str | None
    metric: str | None
    direction: str | None
    runs: list[str]
    seeds: list[int]
    recipe: Settings
    reduced: list[str]
    published: Settings | None
    search: SearchSummary | None
    notes: NotRequired[list[str]]
    imported: NotRequired[Imported]


class Columns(TypedDict):
    """A row of a leaderboard, in the order of its CSV.

    Numbers are raw units (a percentage is a fraction); None where there is none.
    """

    cell: str
    dataset: str
    model: str
    status: str
    reason: str | None
    metric: str | None
    direction: str | None
    unit: str
    mean: float | None
    std: float | None
    std_ddof: int
    runs: int
    seeds: int
    published_mean: float | None
    published_std: float | None
    published_runs: int | None
    published_printed: str | None
    published_source: str | None
    published_place: list[str] | None
    flags: list[str]
    difference: float | None
    interval_low: float | None
    interval_high: float | None
    verdict: str
    provisional: bool | None
    margin: float | None
    margin_std: float | None
    power: float | None
    seeds_needed: int | None
    p_difference: float | None
    p_equivalence: float | None
    excluded_gap: float | None
    q_difference: float | None
    claim: str | None
    claim_rival: str | None
    claim_low: float | None
    claim_high: float | None
    claim_more_seeds: int | None
    reduced: list[str]
    notes: list[str]
    chosen_on_test: bool
    parameters: int | None
    seconds_per_epoch: float | None
    peak_memory_mib: float | None
    device: str | None
    values: list[float]
    digests: list[str]
    tests: str | None
    chance: float | None
    expected: str | None
    expected_limit: float | None
    expected_margin: float | None
    expected_because: str | None
    as_expected: str | None
    contributed: str | None


class Row(Columns):
    """A row with the state of its cell, and with its source, "own" or "shipped", if both were searched.

    `ensemble`: of a cell of `gt-bench try --search N --ensemble`, as in its result.
    """

    state: CellState
    source: NotRequired[str | None]
    ensemble: NotRequired[EnsembleSummary]


COLUMNS = tuple(Columns.__annotations__)
