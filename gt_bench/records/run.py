"""The record of a run: `store/<first two digits>/<digest>/record.json`, and an entry of a shipped file."""

import re
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from gt_bench.records.base import FileModel, Number, Sha256

DIRTY = "-dirty"
MAX_NAME = 200  # characters of the name of a contributor


class RunStatus(StrEnum):
    """How a run ended. Every status is a result; errors of the program have no record."""

    OK = "ok"
    DIVERGED = "diverged"  # the loss, an output or a weight was not finite
    OOM = "oom"
    TIMED_OUT = "timed-out"
    FAILED = "failed"  # the metric is not defined on validation, for example


class Verification(StrEnum):
    """What the maintainers checked of a contributed record."""

    SCHEMA_ONLY = "schema only"
    RECOMPUTED = "recomputed"


def _is_commit(text: str) -> str:
    if not re.fullmatch(rf"([0-9a-f]{{40}}|[0-9a-f]{{64}})({DIRTY})?|unknown", text):
        raise ValueError(f"expected a hexadecimal commit, with {DIRTY} if there were changes, or unknown")
    return text


def _is_moment(text: str) -> str:
    with suppress(ValueError):
        if datetime.fromisoformat(text).tzinfo:
            return text
    raise ValueError("expected a date and time with time zone in ISO 8601")


def _is_name(text: str) -> str:
    if not 0 < len(text) <= MAX_NAME or not text.isprintable():
        raise ValueError(f"expected a name of at most {MAX_NAME} characters on one line")
    return text


Commit = Annotated[str, AfterValidator(_is_commit)]
Moment = Annotated[str, AfterValidator(_is_moment)]


class Digests(FileModel):
    """sha256 of what decides a run, besides its seed, split and versions.

    Attributes:
        recipe: of the recipe.
        data: of the packed dataset.
        encodings: of all encodings.
        files: of a user-supplied model: its file and the files of its folder that it imports. Random for a class that
            no new process can import, whose runs are computed each time.
        modified: of code whose golden values differ from those of its declared versions.
        metric: of the files of user-supplied metrics.
        last_batch: "joined" where one graph is left over in training and joins the batch before it.
    """

    recipe: Sha256
    data: Sha256
    encodings: Sha256
    files: str | None = None
    modified: str | None = None
    metric: str | None = None
    last_batch: Literal["joined"] | None = None


class Run(FileModel):
    """The deterministic part of a record: the settings of a run and its results.

    Attributes:
        versions: declared version of each component that computed it: model, task, trainer, ...
        epochs: curves by name, an entry per epoch; None where nothing was measured.
        val: metric on validation at the best epoch, raw unit.
        test: metric on test at the best epoch, raw unit. None for a trial of a search.
    """

    status: RunStatus = Field(strict=False)
    error: str | None
    seed: int
    split: int
    recipe: dict[str, Any]
    digests: Digests
    versions: dict[str, int]
    dataset: str
    metric: str
    direction: Literal["max", "min"]
    parameters: int
    epochs: dict[str, list[Number | None]]
    best_epoch: int | None
    val: Number | None
    test: Number | None
    test_metrics: dict[str, Number]


class Environment(FileModel):
    """Machine, commit and package versions of a run. Other keys are names of packages."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, str]

    python: str
    system: str | None = None
    cpu: str | None = None
    cpu_capability: str | None = None
    blas: dict[str, str] | None = None
    cores: int | None = None
    device: str | None = None
    allocator: str | None = None
    commit: Commit | None = None


class ComputedBy(FileModel):
    """Libraries that decide the last digits of an encoding; `flags`: number of graphs whose vectors are not unique."""

    computed_by: dict[str, str]
    flags: dict[str, int] = Field(default_factory=dict)


class StaticReport(FileModel):
    """Effects of padding (`batch.static`) and compilation (`compile`) in a run.

    Attributes:
        compile_seconds: part of the seconds of the run.
        sizes: graphs, nodes, edges and pairs of each padded size.
        batches: number of batches by what was done: padded, unpadded, one size.
        not_replayed: compiled graphs that `reduce-overhead` runs on a GPU without replay.
    """

    mode: str | None
    compilations: int
    compile_seconds: Number
    sizes: list[list[int]]
    batches: dict[str, int]
    not_replayed: int = 0


class Measured(FileModel):
    """The measured part of a record: the cost of a run on the machine that computed it. Memory is in MiB."""

    started: Moment
    finished: Moment
    seconds: Number
    train_seconds_per_epoch: Number
    eval_seconds_per_epoch: Number
    peak_memory_mib: Number
    memory_limit_mib: Number
    time_limit_seconds: Number | None
    device: str
    environment: Environment
    code: str  # hash of the code that computed it: information
    # missing in records that are older than these measurements
    threads: int | None = None
    processes: int | None = None
    forms: dict[str, dict[str, list[str]]] = Field(default_factory=dict)
    arguments: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, list[Number]] = Field(default_factory=dict)
    encodings: dict[str, ComputedBy] = Field(default_factory=dict)
    static: StaticReport | None = None


class StoredPredictions(FileModel):
    """Outputs of a run on validation and test: digest and size of the file, or why there is none."""

    sha256: Sha256 | None = None
    bytes: int | None = None
    left_out: str | None = None
    left_out_mib: Number | None = None


class RunRecord(FileModel):
    """A run with everything that decides it and what it cost.

    Attributes:
        digest: key of the run, a sha256 of everything that decides its numbers.
        run: the deterministic part.
        checksum: sha256 of the deterministic part, to detect edited numbers.
        legacy_key: digest of the run while keys contained the text of the code.
        by: who contributed the record.
        verified: what was checked of a contributed record; records of the maintainers have none.
    """

    schema_: Literal[2] = Field(alias="schema")
    digest: Sha256
    run: Run = Field(alias="deterministic")
    measured: Measured
    checksum: Sha256 | None = None
    predictions: StoredPredictions | None = None
    legacy_key: str | None = None
    by: Annotated[str, AfterValidator(_is_name)] | None = None
    verified: Verification | None = Field(default=None, strict=False)
