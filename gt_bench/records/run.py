"""The record of a run: `store/<first two digits>/<digest>/record.json`, and an entry of a shipped file."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from gt_bench.records.base import FileModel, Number, Sha256

DIRTY = "-dirty"
WEIGHTS = "weights.safetensors"  # next to the record
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
# by name, an entry per epoch; None where nothing was measured
Curves = dict[str, list[Number | None]]


def points(curves: Mapping[str, Sequence[Number | None]], name: str) -> list[tuple[int, float]]:
    """Returns (epoch, value) of a curve for the epochs in which it was measured."""
    both = zip(curves.get("epoch", ()), curves.get(name, ()), strict=False)
    return [(int(epoch), value) for epoch, value in both if epoch is not None and value is not None]


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


class RunResult(FileModel):
    """The deterministic part of a record: the settings of a run and its results.

    Attributes:
        status: how it ended.
        error: its error.
        seed: seed of weights and batches.
        split: index of the split.
        recipe: all values that decide it.
        digests: what else decides it.
        versions: declared version of each component that computed it: model, task, trainer, ...
        dataset: its name.
        metric: its name.
        direction: whether larger is better.
        parameters: their number.
        epochs: curves by name, an entry per epoch.
        best_epoch: the tested epoch, from 1.
        val: metric on validation at the best epoch, raw unit.
        test: metric on test at the best epoch, raw unit. None for a trial of a search.
        test_metrics: all metrics on test.
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
    epochs: Curves
    best_epoch: int | None
    val: Number | None
    test: Number | None
    test_metrics: dict[str, Number]


class Environment(FileModel):
    """Machine, commit and package versions of a run. Other keys are names of packages.

    Attributes:
        python: version.
        system: operating system.
        cpu: processor.
        cpu_capability: vector instructions that torch uses.
        blas: libraries of linear algebra.
        cores: available cores.
        device: name of the GPU.
        allocator: of memory.
        commit: git commit, with `-dirty` if there were changes, or `unknown`.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, defer_build=True)
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

    def package(self, name: str) -> str | None:
        """Return the version of a package, None if the record has none."""
        return (self.model_extra or {}).get(name)


class ComputedBy(FileModel):
    """Libraries that decide the last digits of an encoding.

    Attributes:
        computed_by: versions by library.
        flags: number of graphs whose vectors are not unique, by kind.
    """

    computed_by: dict[str, str]
    flags: dict[str, int] = Field(default_factory=dict)


class StaticReport(FileModel):
    """Effects of padding (`batch.static`) and compilation (`compile`) in a run.

    Attributes:
        mode: of torch.compile.
        compilations: their number.
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


class Session(FileModel):
    """Start, commit and device of one of the processes that computed a run one after the other.

    Attributes:
        started: date and time.
        commit: as in the environment.
        device: `cpu`, or the GPU.
    """

    started: Moment
    commit: Commit
    device: str


class Measured(FileModel):
    """The measured part of a record: the cost of a run on the machine that computed it. Memory is in MiB.

    Attributes:
        started: start of the first session.
        finished: end of the last session.
        seconds: of all sessions.
        train_seconds_per_epoch: mean.
        eval_seconds_per_epoch: mean.
        peak_memory_mib: of the GPU, otherwise of the process.
        memory_limit_mib: of the machine or the job.
        time_limit_seconds: of the run.
        device: `cpu`, or the GPU.
        threads: of the CPU.
        forms: fast forms by part of the model.
        arguments: complete arguments of the constructor of the model.
        usage: load of processor, memory and GPU during training.
        encodings: libraries of each encoding.
        code: hash of the code, for information.
        environment: the machine.
        static: padding and compilation.
        processes: of distributed training.
        sessions: of a run that was resumed from its checkpoint, the last one is that of `device` and `environment`.
    """

    started: Moment
    finished: Moment
    seconds: Number
    train_seconds_per_epoch: Number
    eval_seconds_per_epoch: Number
    peak_memory_mib: Number
    memory_limit_mib: Number
    time_limit_seconds: Number | None
    device: str
    # those with a default are missing in records that are older than these measurements
    threads: int | None = None
    forms: dict[str, dict[str, list[str]]] = Field(default_factory=dict)
    arguments: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, list[Number]] = Field(default_factory=dict)
    encodings: dict[str, ComputedBy] = Field(default_factory=dict)
    code: str  # hash of the code that computed it: information
    environment: Environment
    static: StaticReport | None = None
    processes: int | None = None
    sessions: list[Session] = Field(default_factory=list)


class StoredPredictions(FileModel):
    """Outputs of a run on validation and test: digest and size of the file, or why there is none.

    Attributes:
        sha256: of the file.
        bytes: its size.
        left_out: why there is none.
        left_out_mib: size that it would have.
    """

    sha256: Sha256 | None = None
    bytes: int | None = None
    left_out: str | None = None
    left_out_mib: Number | None = None


class RunRecord(FileModel):
    """A run with everything that decides it and what it cost.

    Attributes:
        schema_: version of the format.
        digest: key of the run, a sha256 of everything that decides its numbers.
        run: the deterministic part.
        measured: what the run cost.
        checksum: sha256 of the deterministic part, to detect edited numbers.
        predictions: the stored outputs.
        legacy_key: digest of the run while keys contained the text of the code.
        by: who contributed the record.
        verified: what was checked of a contributed record; records of the maintainers have none.
    """

    schema_: Literal[2] = Field(alias="schema")
    digest: Sha256
    run: RunResult = Field(alias="deterministic")
    measured: Measured
    checksum: Sha256 | None = None
    predictions: StoredPredictions = Field(default_factory=StoredPredictions)
    legacy_key: str | None = None
    by: Annotated[str, AfterValidator(_is_name)] | None = None
    verified: Verification | None = Field(default=None, strict=False)
