"""Sections of params.yaml: settings of all runs, which change no number, limits of seeds and epochs, and resources.

gt_bench/config/search_section.py has its section `search`, gt_bench/config/verdict_settings.py `run.verdict`.
gt_bench/config/grid.py reads the file.
"""

import re
from typing import Literal

from pydantic import Field, field_validator

from gt_bench.config.schema import Positive, Strict
from gt_bench.config.verdict_settings import Rules

PREDICTIONS_MIB = 16.0
TRACKERS = ("mlflow", "tensorboard")


class Limits(Strict):
    """Reductions of a suite or a cell for limited time. Results of a limited cell are marked as `reduced`.

    Attributes:
        seeds: largest number of seeds.
        trials: largest number of trials of the search.
        epochs: largest number of epochs.
        pairs: largest number of pairs, for protocols that consist of pairs.
    """

    seeds: Positive | None = None
    trials: Positive | None = None
    epochs: Positive | None = None
    pairs: Positive | None = None


class Resources(Strict):
    """Resources of a job of a suite or a cell on a cluster. They replace the forecast.

    Attributes:
        memory_gib: memory.
        hours: time limit, after which the job saves a checkpoint and is submitted again.
        gpus: number of GPUs.
        slurm: further options of sbatch, such as partition, account, qos or constraint.
    """

    memory_gib: float | None = Field(None, gt=0, allow_inf_nan=False)
    hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    gpus: int | None = Field(None, ge=0)
    slurm: dict[str, str | int] = {}


class RunSettings(Strict):
    """Settings of all runs, which do not change their numbers.

    Attributes:
        device: "auto", "cpu", "cuda" or "cuda:N".
        data_on: where graphs are stored while a run trains. "device": on its GPU. "host": in memory. "auto": on the GPU
            if they need at most a quarter of its free memory.
        parallel: number of seeds of a cell that train in parallel. "auto": as cores and memory allow; on a GPU one.
        mirrors: URLs that are tried before the original source of a download.
        time_limit_hours: time limit of a run.
        checkpoint_seconds: time between two checkpoints.
        predictions: outputs on validation and test are stored next to each record if they need at most this many MiB.
            0 stores none.
        require_predictions: whether runs without stored predictions are computed again.
        tracking: loggers of runs, of TRACKERS. True means mlflow.
        study_storage: URL of the database of searches. None for journal files.
        verdict: rules of verdicts.
    """

    device: str = "auto"
    data_on: Literal["auto", "device", "host"] = "auto"
    parallel: Literal["auto"] | Positive = "auto"
    mirrors: list[str] = []
    time_limit_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    checkpoint_seconds: float = Field(60.0, ge=0, allow_inf_nan=False)
    tracking: bool | list[str] = True
    predictions: float = Field(PREDICTIONS_MIB, ge=0, allow_inf_nan=False)
    require_predictions: bool = False
    study_storage: str | None = None
    verdict: Rules = Rules()

    @field_validator("parallel", mode="before")
    @classmethod
    def _check_parallel(cls, parallel: object) -> object:
        if parallel != "auto" and (type(parallel) is not int or parallel < 1):
            raise ValueError("expected auto, or a number of seeds that train in parallel: 1, 2, ...")
        return parallel

    @field_validator("tracking", mode="before")
    @classmethod
    def _check_tracking(cls, tracking: object) -> object:
        names = tracking if isinstance(tracking, list) else []
        if not isinstance(tracking, bool | list) or any(name not in TRACKERS for name in names):
            raise ValueError(f"expected true, false, or a list of loggers: {', '.join(TRACKERS)}")
        return tracking

    @property
    def trackers(self) -> list[str]:
        """Names of the loggers."""
        if isinstance(self.tracking, bool):
            return ["mlflow"] if self.tracking else []
        return self.tracking

    @field_validator("device")
    @classmethod
    def _check_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError("expected auto, cpu, cuda or, for one of several GPUs, cuda:1")
        return device
