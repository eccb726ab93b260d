"""Data-parallel training of one run in several processes (torch's DistributedDataParallel).

Every process runs the standard training loop. It encodes and computes only its own part of the graphs of a batch. The
outputs of all processes are gathered in the order of the batch, so that loss and metric are computed from the whole
batch in every process, whatever a loss averages over. Backward, each process computes the gradient of the whole loss
with respect to its own outputs, and the sum over processes is the gradient of the whole batch. BatchNorm uses the
statistics of the whole batch. The numbers are therefore those of one process up to the order of summation. Random
numbers that a model draws (dropout, identifiers, signs) come from a separate stream in each process.

Decisions that depend on clocks and files are made by rank 0: it alone writes, and its clock counts.
"""

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.loader import seed_of
from gt_bench.training.runner import Meter
from gt_bench.training.trainer import Run
from gt_models.batch import GraphBatch

# seconds within which a process must respond; no process is ahead of the others by more than a step or a checkpoint
TIMEOUT = 600.0


class RetryWithCheckpointing(Exception):
    """A process ran out of memory. All processes start again with activation checkpointing."""


@dataclass
class Share:
    """Rank and process group of this process. Create it with `join`.

    Attributes:
        rank: number of this process.
        world: number of processes.
        device: device of this process.
        group: process group of this module. DistributedDataParallel has another one, whose reductions may overlap.
        counted: whether this process has graphs of the current batch. With fewer graphs than processes, the others
            compute a placeholder graph, whose outputs are dropped.
    """

    rank: int
    world: int
    device: torch.device
    group: dist.ProcessGroup | None = None
    counted: bool = True

    @classmethod
    def join(cls, rank: int, world: int, init_file: Path, device: torch.device, timeout: float = TIMEOUT) -> "Share":
        """Initialises the process group. Waits for the other processes.

        Args:
            rank: number of this process.
            world: number of processes.
            init_file: a file that does not exist yet, the same for all processes.
            device: device of this process.
            timeout: seconds within which a process must respond.
        """
        # loopback: the sockets must not be reachable from other machines
        loopback = next(
            (name for name, nets in psutil.net_if_addrs().items() if any(a.address == "127.0.0.1" for a in nets)),
            None,
        )
        if loopback is not None:
            os.environ.update(GLOO_SOCKET_IFNAME=loopback, NCCL_SOCKET_IFNAME=loopback)
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        limit = timedelta(seconds=timeout)
        dist.init_process_group(
            backend, init_method=f"file://{init_file.resolve()}", rank=rank, world_size=world, timeout=limit
        )
        return cls(rank, world, device, dist.new_group(timeout=limit))

    def all_gather(self, value: Tensor) -> Tensor:
        """Stacks the values of all processes, [...] -> [world, ...]."""
        values = [torch.empty_like(value) for _ in range(self.world)]
        dist.all_gather(values, value.contiguous(), group=self.group)
        return torch.stack(values)

    def model(self, build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        """Returns a function that builds a data-parallel model.

        The model accepts a `WholeBatch`, computes this process's part of it and returns the outputs of the whole batch.
        Its class and the names of its parameters and buffers do not change, so checkpoints are those of one process.

        Args:
            build: builds the model.
        """

        def built() -> nn.Module:
            model = build()
            for module in model.modules():
                if isinstance(module, _BatchNorm):
                    _replace_forward(module, partial(_batch_norm, self, module))
            _replace_forward(model, _SharedForward(model, self))
            return model

        return built


def _replace_forward(module: nn.Module, forward: Callable[..., Tensor]) -> None:
    module.forward = forward  # of this instance only


@dataclass(eq=False)
class SharedRun(Run):
    """`Run` in one of several processes. All processes use the same arguments except `share`."""

    share: Share = field(kw_only=True)

    def __post_init__(self) -> None:
        self.loader, self.build = SharedBatches(self.loader, self.share), self.share.model(self.build)
        self.meter = SharedMeter(self.meter, self.share)
        self.checkpoint = SharedCheckpoint(self.checkpoint, self.share)
        super().__post_init__()

    def _attempt(self, test: bool) -> bool:
        if super()._attempt(test):  # the other processes are in the middle of a step: all have to start again
            raise RetryWithCheckpointing
        return False


@dataclass
class WholeBatch(GraphBatch):
    """The graphs of a batch without encodings, and this process's part of them.

    Attributes:
        part: the graphs of this process, with encodings.
        counted: False if this process has no graph of the batch. `part` is then a placeholder, whose outputs are
            dropped.
    """

    part: GraphBatch = field(kw_only=True)
    counted: bool = field(kw_only=True)


class SharedBatches:
    """A loader that has the same batches in every process and encodes only this process's part of them."""

    def __init__(self, loader: Any, share: Share):
        self._share, self._load_part = share, loader.load
        # without encodings: subgraphs around nodes, or packed graphs
        self._load_bare = loader.subgraphs.around if hasattr(loader, "subgraphs") else loader.packed.batch
        self._loader = copy.copy(loader)
        self._loader.load = self.load

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load(self, graphs: Tensor) -> WholeBatch:
        """Loads the graphs of a batch without encodings, and this process's part of them with encodings."""
        mine = graphs.tensor_split(self._share.world)[self._share.rank]
        part = self._load_part(mine if len(mine) else graphs[:1])
        whole = self._load_bare(graphs).to(self._loader.device, self._loader.dtype)
        return WholeBatch(
            **{f.name: getattr(whole, f.name) for f in fields(GraphBatch)}, part=part, counted=len(mine) > 0
        )

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the training batches of an epoch. The model's random numbers differ between processes."""
        self._seed_by_rank()
        yield from self._loader.training(epoch)

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the batches of a part of the split."""
        self._seed_by_rank()
        yield from self._loader.evaluation(part)

    def _seed_by_rank(self) -> None:
        """Derives a seed for this process from the one that the training loop has set."""
        torch.manual_seed(seed_of(torch.initial_seed(), "process", self._share.rank))


class SharedMeter:
    """The clock of rank 0, which decides in all processes when the time limit is reached."""

    def __init__(self, meter: Meter, share: Share):
        self.meter, self.share = meter, share
        self.totals, self.sessions = meter.totals, meter.sessions  # of rank 0

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Times a block and sets `totals` to those of rank 0. Every process must enter it."""
        with self.meter.timing(what):
            yield
        seconds = torch.tensor(list(self.totals.values()), dtype=torch.float64)
        self.totals.update(zip(self.totals, self.share.all_gather(seconds)[0].tolist(), strict=True))


class SharedCheckpoint(Checkpoint):
    """A checkpoint that all processes read and rank 0 writes."""

    def __init__(self, checkpoint: Checkpoint, share: Share):
        super().__init__(checkpoint.path, checkpoint.seconds)
        self.share = share

    def read(self) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
        """Reads the checkpoint in every process.

        Raises:
            RuntimeError: processes read different checkpoints.
        """
        saved = super().read()
        if self.path is not None:
            hashes = self.share.all_gather(torch.tensor(seed_of(saved and saved[0])))
            if bool((hashes != hashes[0]).any()):
                raise RuntimeError(f"{self.path}: the processes of one run have read different checkpoints")
        return saved

    def write(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        """Writes the checkpoint in rank 0."""
        if self.share.rank == 0:
            super().write(header, groups)

    def set_aside(self, error: BaseException) -> None:
        """Renames an unusable checkpoint in rank 0."""
        if self.share.rank == 0:
            super().set_aside(error)


class _SharedForward:
    """Replaces a model's `forward`: computes the outputs of a `WholeBatch` in all processes."""

    def __init__(self, model: nn.Module, share: Share):
        self.model, self.share, self.forward = model, share, model.forward
        self.parallel: DistributedDataParallel | None = None
        self.trained = True

    def __call__(self, batch: WholeBatch) -> Tensor:
        self.share.counted = batch.counted
        if self.model.training:
            if self.parallel is None:  # the model is on its device only now
                # Parameters may be unused in a phase or in a part without edges. This option also fixes the buckets, so
                # a resumed run adds gradients in the same order.
                self.parallel = DistributedDataParallel(_Forward(self.model, self.forward), find_unused_parameters=True)
            own, self.trained = self.parallel(batch.part), True
        else:
            if self.trained:  # random features may have been drawn again
                for buffer in self.model.buffers():
                    dist.broadcast(buffer, 0, group=self.share.group)
            own, self.trained = self.forward(batch.part), False
        own = own if batch.counted else own[:0]
        return _Gathered.apply(own.float() if own.dtype == torch.bfloat16 else own, self.share)


class _Forward(nn.Module):
    """The module that DistributedDataParallel wraps: it calls the original `forward` of the model."""

    def __init__(self, model: nn.Module, forward: Callable[[GraphBatch], Tensor]):
        super().__init__()
        self.model, self._forward = model, forward

    def forward(self, batch: GraphBatch) -> Tensor:
        return self._forward(batch)


class _Gathered(Function):
    """Concatenates the rows of all processes, [n_r, ...] -> [sum n_r, ...].

    Backward: the rows of this process times the number of processes, because DistributedDataParallel averages the
    gradients.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, share: Share) -> Tensor:
        counts = share.all_gather(torch.tensor(len(own))).tolist()
        padded = own.new_zeros(max(counts), *own.shape[1:])
        padded[: len(own)] = own
        start = sum(counts[: share.rank])
        ctx.rows, ctx.world = slice(start, start + len(own)), share.world
        return torch.cat([rows[:count] for rows, count in zip(share.all_gather(padded), counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.rows] * ctx.world, None


class _Sum(Function):
    """The sum over processes, available in each of them. Differentiable."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, share: Share) -> Tensor:
        ctx.share = share
        total = own.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=share.group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Sum.apply(grad, ctx.share), None


def _batch_norm(share: Share, module: _BatchNorm, x: Tensor) -> Tensor:
    """Batch normalisation over the rows of all processes, like torch's SyncBatchNorm, which does not support CPUs.

    Args:
        share: process group.
        module: the BatchNorm layer, whose running statistics are updated.
        x: features, [N, C] or [N, C, ...].
    """
    if not module.training and module.running_mean is not None:
        return type(module).forward(module, x)
    dims, shape = [0, *range(2, x.dim())], [1, -1, *[1] * (x.dim() - 2)]
    values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    rows = float(x.numel() // x.size(1)) * share.counted
    count = share.all_gather(torch.tensor(rows, dtype=torch.float64)).sum().item()
    if count <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got {int(count)} in all processes")
    mean = _Sum.apply(values.sum(dims) * share.counted, share) / count
    centred = values - mean.view(shape)
    variance = _Sum.apply(centred.square().sum(dims) * share.counted, share) / count
    running_mean, running_var, batches = module.running_mean, module.running_var, module.num_batches_tracked
    # before the output: activation checkpointing stops a layer once the last tensor it needs is computed
    if module.training and running_mean is not None and running_var is not None and batches is not None:
        with torch.no_grad():
            batches += 1
            step = 1 / float(batches) if module.momentum is None else module.momentum
            running_mean.lerp_(mean.to(running_mean.dtype), step)
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), step)
    out = centred * (variance + module.eps).rsqrt().view(shape)
    if module.affine:
        out = out * module.weight.view(shape) + module.bias.view(shape)
    return out.to(x.dtype)
