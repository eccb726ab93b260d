"""One run in several processes, each with its part of the graphs of every step (torch's DistributedDataParallel).

In every process the loop is the same and sees the same: whole batches, whole outputs. A process loads and computes its own graphs alone; then
the outputs of all are gathered in the order of the batch, so that task, loss and metric are those of one process, whatever a loss is the mean
of, and each graph is evaluated once. Backward, each process has the gradient of the whole loss by its own outputs, and the sum over processes is
the gradient of the whole batch. BatchNorm takes its statistics over the whole batch. So the numbers are those of one process up to the order of
sums. What a model draws (dropout, identifiers, signs) it draws in each process from a stream of its own.

What depends on clocks and files is decided by process 0: it alone writes, and its clock counts.
"""

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.interfaces import Batches, Objective
from gt_bench.training.loader import seed_of
from gt_bench.training.trainer import Meter, Run
from gt_models.batch import GraphBatch

PATIENCE = 600.0  # seconds in which one of several processes answers the others; none is ahead of them by more than a step, or a checkpoint


class KeepLess(Exception):
    """This process ran out of memory; all begin again, and keep of each layer only its input."""


@dataclass
class Share:
    """This process's part of a run: `rank` of `world`. Make it by `join`."""

    rank: int
    world: int
    device: torch.device
    # apart from DistributedDataParallel's own: its sums may be under way while others begin
    group: dist.ProcessGroup | None = None
    # whether the graphs at hand are this process's: with fewer graphs than processes some have a dummy, whose outputs are dropped
    counted: bool = True

    @classmethod
    def join(cls, rank: int, world: int, meeting: Path, device: torch.device, patience: float = PATIENCE) -> "Share":
        """Waits for the others. `meeting`: a file that does not exist yet, the same for all; `patience`: see `PATIENCE`."""
        # on loopback: nobody else has business with these sockets
        loopback = next(
            (name for name, found in psutil.net_if_addrs().items() if any(a.address == "127.0.0.1" for a in found)),
            None,
        )
        if loopback is not None:
            os.environ.update(GLOO_SOCKET_IFNAME=loopback, NCCL_SOCKET_IFNAME=loopback)
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        limit = timedelta(seconds=patience)
        dist.init_process_group(
            backend, init_method=f"file://{meeting.resolve()}", rank=rank, world_size=world, timeout=limit
        )
        return cls(rank, world, device, dist.new_group(timeout=limit))

    def all_of(self, value: Tensor) -> Tensor:
        """The values of all processes, [...] -> [world, ...]."""
        values = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(values, value.contiguous(), group=self.group)
        return torch.stack(values)

    def model(self, build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """`build`, whose model takes a `WholeBatch`, computes this process's part and returns the outputs of the whole. Its class, parameters and
        buffers, with their names, are as before, so that a checkpoint is that of one process."""

        def built() -> nn.Module:
            model = build()
            for module in model.modules():
                if isinstance(module, _BatchNorm):
                    _replace_forward(module, partial(_batch_norm, self, module))
            _replace_forward(model, _SharedForward(model, self))
            return model

        return built


def _replace_forward(module: nn.Module, forward: Callable[..., Tensor]) -> None:
    module.forward = forward  # of this instance alone


class SharedRun(Run):
    """`Run` in one of several processes; every one of them runs it with the same arguments, but for `share`."""

    def __init__(
        self,
        recipe: Any,
        task: Objective,
        loader: Batches,
        build: Callable[[], nn.Module],
        *,
        share: Share,
        recomputed: bool,
        meter: Meter,
        checkpoint: Checkpoint,
        **others: Any,
    ):
        super().__init__(
            recipe, task, SharedBatches(loader, share), share.model(build),
            meter=SharedMeter(meter, share), checkpoint=SharedCheckpoint(checkpoint, share), **others,
        )  # fmt: skip
        self.recomputed = recomputed

    def _attempt(self, test: bool) -> bool:
        if super()._attempt(test):  # the others are in the middle of a step, and cannot know
            raise KeepLess
        return False


@dataclass
class WholeBatch(GraphBatch):
    """The graphs of a step without their encodings, and `part`: this process's, complete. `counted`: False where this process has no
    graph of the step, and `part` is a dummy whose outputs are dropped."""

    part: GraphBatch = field(kw_only=True)
    counted: bool = field(kw_only=True)


class SharedBatches:
    """A loader whose batches are the same in every process, and of which each loads its part."""

    def __init__(self, loader: Any, share: Share):
        self._share, self._load_part = share, loader.load
        # without encodings: around each node, or as packed
        self._load_bare = loader.subgraphs.around if hasattr(loader, "subgraphs") else loader.packed.batch
        self._loader = copy.copy(loader)
        self._loader.load = self.load

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load(self, graphs: Tensor) -> WholeBatch:
        """The graphs of a step: bare in every process, and this process's part of them with encodings."""
        mine = graphs.tensor_split(self._share.world)[self._share.rank]
        part = self._load_part(mine if len(mine) else graphs[:1])
        whole = self._load_bare(graphs).to(self._loader.device, self._loader.dtype)
        return WholeBatch(
            **{f.name: getattr(whole, f.name) for f in fields(GraphBatch)}, part=part, counted=len(mine) > 0
        )

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """The loader's batches of an epoch; random numbers differ between processes."""
        self._draw_apart()
        yield from self._loader.training(epoch)

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """The loader's batches of a split's part."""
        self._draw_apart()
        yield from self._loader.evaluation(part)

    def _draw_apart(self) -> None:
        """From the stream that the loop has named, one for each process."""
        torch.manual_seed(seed_of(torch.initial_seed(), "process", self._share.rank))


class SharedMeter:
    """The clock of process 0, which decides in all of them when the time is over."""

    def __init__(self, meter: Meter, share: Share):
        self.meter, self.share = meter, share
        self.totals = meter.totals  # seconds per kind of work, process 0's

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Times the block and takes over process 0's seconds; every process must enter it."""
        with self.meter.timing(what):
            yield
        seconds = torch.tensor(list(self.totals.values()), dtype=torch.float64)
        self.totals.update(zip(self.totals, self.share.all_of(seconds)[0].tolist(), strict=True))


class SharedCheckpoint(Checkpoint):
    """All processes go on from the same file; process 0 writes it."""

    def __init__(self, checkpoint: Checkpoint, share: Share):
        super().__init__(checkpoint.path, checkpoint.seconds)
        self.share = share

    def read(self) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
        """Raises RuntimeError where the processes have read different checkpoints."""
        saved = super().read()
        if self.path is not None:
            seen = self.share.all_of(torch.tensor(seed_of(saved and saved[0])))
            if bool((seen != seen[0]).any()):
                raise RuntimeError(f"{self.path}: the processes of one run have read different checkpoints")
        return saved

    def write(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        """In process 0 only."""
        if self.share.rank == 0:
            super().write(header, groups)

    def set_aside(self, why: BaseException) -> None:
        """In process 0 only."""
        if self.share.rank == 0:
            super().set_aside(why)


class _SharedForward:
    """In place of a model's `forward`."""

    def __init__(self, model: nn.Module, share: Share):
        self.model, self.share, self.forward = model, share, model.forward
        self.parallel: DistributedDataParallel | None = None
        self.trained = True

    def __call__(self, batch: WholeBatch) -> Tensor:
        self.share.counted = batch.counted
        if self.model.training:
            if self.parallel is None:  # now that the model is on its device
                # unused: by a phase, or by a part without edges. So asked, it also keeps its buckets, and a resumed run adds in the same order
                self.parallel = DistributedDataParallel(_Forward(self.model, self.forward), find_unused_parameters=True)
            own, self.trained = self.parallel(batch.part), True
        else:
            if self.trained:  # random features that were drawn anew
                for buffer in self.model.buffers():
                    dist.broadcast(buffer, 0, group=self.share.group)
            own, self.trained = self.forward(batch.part), False
        own = own if batch.counted else own[:0]
        return _Gathered.apply(own.float() if own.dtype == torch.bfloat16 else own, self.share)


class _Forward(nn.Module):
    """What DistributedDataParallel calls: the model by its own `forward`."""

    def __init__(self, model: nn.Module, forward: Callable[[GraphBatch], Tensor]):
        super().__init__()
        self.model, self._forward = model, forward

    def forward(self, batch: GraphBatch) -> Tensor:
        return self._forward(batch)


class _OwnRows(Protocol):
    """What the backward pass of `_Gathered` needs: which rows are this process's, and the number of processes."""

    rows: slice
    world: int


class _WithShare(Protocol):
    """What the backward pass of `_Sum` needs."""

    share: Share


class _Gathered(Function):
    """Rows of all processes, one after the other, [n_r, ...] -> [sum n_r, ...].

    Backward: this process's rows, times the number of processes, since DistributedDataParallel takes the mean of the gradients."""

    @staticmethod
    def forward(ctx: _OwnRows, own: Tensor, share: Share) -> Tensor:
        counts = share.all_of(torch.tensor(len(own))).tolist()
        padded = own.new_zeros(max(counts), *own.shape[1:])
        padded[: len(own)] = own
        start = sum(counts[: share.rank])
        ctx.rows, ctx.world = slice(start, start + len(own)), share.world
        return torch.cat([rows[:count] for rows, count in zip(share.all_of(padded), counts, strict=True)])

    @staticmethod
    def backward(ctx: _OwnRows, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.rows] * ctx.world, None


class _Sum(Function):
    """The sum over processes, in each of them; differentiable."""

    @staticmethod
    def forward(ctx: _WithShare, own: Tensor, share: Share) -> Tensor:
        ctx.share = share
        total = own.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=share.group)
        return total

    @staticmethod
    def backward(ctx: _WithShare, grad: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(grad, ctx.share), None


def _batch_norm(share: Share, module: _BatchNorm, x: Tensor) -> Tensor:
    """Batch normalisation [N, C] or [N, C, ...] by the statistics of all processes' rows: torch's SyncBatchNorm, which has no form for CPUs."""
    if not module.training and module.running_mean is not None:
        return type(module).forward(module, x)
    dims, shape = [0, *range(2, x.dim())], [1, -1, *[1] * (x.dim() - 2)]
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    rows = float(x.numel() // x.size(1)) * share.counted
    count = share.all_of(torch.tensor(rows, dtype=torch.float64)).sum().item()
    if count <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got {int(count)} in all processes")
    mean = _Sum.apply(values.sum(dims) * share.counted, share) / count
    centred = values - mean.view(shape)
    variance = _Sum.apply(centred.square().sum(dims) * share.counted, share) / count
    kept_mean, kept_variance, batches = module.running_mean, module.running_var, module.num_batches_tracked
    # first: a layer that is computed again stops at the last tensor that it lacks
    if module.training and kept_mean is not None and kept_variance is not None and batches is not None:
        with torch.no_grad():
            batches += 1
            step = 1 / float(batches) if module.momentum is None else module.momentum
            kept_mean.lerp_(mean.to(kept_mean.dtype), step)
            kept_variance.lerp_((variance * (count / (count - 1))).to(kept_variance.dtype), step)
    out = centred * (variance + module.eps).rsqrt().view(shape)
    if module.affine:
        out = out * module.weight.view(shape) + module.bias.view(shape)
    return out.to(x.dtype)
