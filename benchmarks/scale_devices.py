"""Devices by their rates: seconds of a run by its counts, and a CPU fitted to shipped records (see scale.py)."""

import math
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cells import ROOT
from benchmarks.scale_counts import donor_of, model_of, scaled
from gt_bench.config.grid import Grid, load_grid
from gt_bench.records.run import RunRecord, RunResult

LAUNCHES = tuple(
    1e-6 * one for one in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
)  # seconds of an operation on a CPU, of which records choose one


@dataclass(frozen=True)
class Device:
    """Rates: operations of matrix products and bytes of memory a second, seconds that a kernel takes to launch."""

    name: str
    products: float
    bandwidth: float
    launch: float

    def floor(self, run: dict[str, float]) -> float:
        """Seconds with everything but products, their operands and the optimiser free."""
        return max(run["products"] / self.products, (run["product_bytes"] + run["optimiser_bytes"]) / self.bandwidth)

    def unfused(self, run: dict[str, float]) -> float:
        """Seconds of the definitions, each operation a kernel of its own that reads and writes memory."""
        return max(
            run["products"] / self.products,
            (run["bytes"] + run["optimiser_bytes"]) / self.bandwidth,
            run["calls"] * self.launch,
        )


@dataclass(frozen=True)
class Calibrated:
    """One thread of a CPU, fitted to shipped records.

    Seconds are those of products, of traffic and a time per operation, which is chosen so that the `ratios` of recorded
    to estimated seconds vary least.

    A run takes the middle one.
    """

    device: Device
    ratios: tuple[float, ...]

    def seconds(self, run: dict[str, float]) -> float:
        return statistics.median(self.ratios) * serial(self.device, run)


def serial(device: Device, run: dict[str, float]) -> float:
    moved = run["bytes"] + run["optimiser_bytes"]
    return run["products"] / device.products + moved / device.bandwidth + run["calls"] * device.launch


def shipped_runs(root: Path = ROOT / "suites") -> dict[str, list[RunRecord]]:
    """Returns the successful records of runs on a CPU by cell, without cells of reduced size."""
    from gt_bench.store.shipped_files import shipped_cells

    found = {
        one.cell: [r for r in one.records if r.run.status == "ok" and r.measured.device == "cpu"]
        for one in shipped_cells(load_grid(), root=root)
        if not one.result.reduced
    }
    return {cell: records for cell, records in found.items() if records}


def priced(kept: dict[str, Any], shipped: dict[str, list[RunRecord]], cpu: Calibrated) -> dict[str, Any]:
    """Returns the cells that are counted or estimated, with seconds of a run on both devices.

    On a CPU these are the mean of shipped records, of which `measured` is the number. A cell without records has the
    estimate, times the median ratio of measured to estimated seconds of cells with its model.
    """
    device, grid = h100(), load_grid()
    counted = {name: one for name, one in kept.items() if "calls" in one}
    took = {name: statistics.fmean(r.measured.seconds for r in shipped.get(name, ())) for name in shipped}
    ratios: dict[str, list[float]] = {}
    for name in counted.keys() & took.keys():
        ratios.setdefault(model_of(grid.find(name)), []).append(took[name] / cpu.seconds(counted[name]))
    found = {}
    for name, one in counted.items():
        times = {"h100": {"floor": device.floor(one), "unfused": device.unfused(one)}}
        if name in took:
            found[name] = one | times | {"cpu": took[name], "measured": len(shipped[name])}
        else:
            correction = statistics.median(ratios.get(model_of(grid.find(name)), [1.0]))
            found[name] = one | times | {"cpu": correction * cpu.seconds(one)}
    return found


def calibrated(device: Device, kept: dict[str, Any], shipped: dict[str, list[RunRecord]]) -> Calibrated:
    """By the shipped cells that ran to their last epoch on a CPU, as full cells."""
    took: list[tuple[dict[str, float], float]] = []
    for cell, records in shipped.items():
        whole = [r.measured.seconds for r in records if _is_whole(r.run)]
        run = kept.get(cell, {})
        if whole and "calls" in run and "estimated" not in run:
            took.append((run, statistics.fmean(whole)))

    def ratios(launch: float) -> tuple[float, ...]:
        return tuple(seconds / serial(replace(device, launch=launch), run) for run, seconds in took)

    launch = min(LAUNCHES, key=lambda one: statistics.pstdev(map(math.log, ratios(one))))
    return Calibrated(replace(device, launch=launch), ratios(launch))


def _is_whole(run: RunResult) -> bool:
    """Whether nothing ended a run before its last epoch."""
    recipe = run.recipe
    asked = sum(phase["epochs"] for phase in recipe.get("phases") or ()) or recipe["epochs"]
    return recipe.get("protocol") is not None or run.epochs["epoch"][-1:] == [asked]


def h100() -> Device:
    from benchmarks.roofline import BANDWIDTH, LAUNCH, TF32

    return Device("H100", TF32, BANDWIDTH, LAUNCH)


def rates_here() -> Device:
    """This processor, one thread: large products, copies, and what torch takes to do next to nothing."""
    import torch

    from benchmarks.cells import rates

    operations, copies = rates()
    one = torch.ones(1)
    start = time.process_time()
    for _ in range(200_000):
        torch.add(one, one)
    return Device("this processor", operations, copies, (time.process_time() - start) / 200_000)


def donor_ratios(kept: dict[str, Any], grid: Grid, device: Device) -> list[float]:
    """Of cells with a count: what another one of the same model would have given, by what it is."""
    known = [
        cell
        for cell in grid.cells.values()
        if "calls" in kept.get(cell.cell, {}) and "estimated" not in kept[cell.cell]
    ]
    found = []
    for cell in known:
        donor = donor_of(cell, known)
        if donor is not None and model_of(donor) == model_of(cell):
            found.append(device.unfused(scaled(kept[donor.cell], donor, cell)) / device.unfused(kept[cell.cell]))
    return found
