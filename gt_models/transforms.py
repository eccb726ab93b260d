"""Encodings as a torch_geometric transform.

model = create_model("ppgt", in_dim=7, out_dim=2, level="graph", rrwp_dim=8)
transform = AddEncodings.for_model(model)
loader = DataLoader([transform(data) for data in dataset], batch_size=16)
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from gt_models.batch import GraphBatch
from gt_models.encodings import ENCODINGS, Encoding, EncodingError, compute, find_encoding

Arguments = Mapping[str, Any]  # of an encoding, by name
Requests = dict[str, dict[str, Any]]  # encoding -> its arguments


class AddEncodings(BaseTransform):
    """Sets encodings as attributes of a `Data` or `Batch`, flat as models read them.

    They are [N, k] per node and [sum n_b^2, k] per pair.

    The DataLoader of torch_geometric joins them as it joins node features. Random encodings depend on the graph's
    content alone, not on its place in a dataset.

    Args:
        requests: encoding -> its arguments, as under `encodings:` in a recipe: {"laplacian": {"k": 8}}.

    Raises:
        EncodingError: an unknown encoding or argument.
    """

    def __init__(self, requests: Mapping[str, Arguments]):
        self.requests: Requests | None = {
            name: find_encoding(name).arguments(dict(given)) for name, given in requests.items()
        }
        self._model: nn.Module | None = None
        self._given: Requests = {}

    @classmethod
    def for_model(cls, model: nn.Module, arguments: Mapping[str, Arguments] | None = None) -> AddEncodings:
        """Adds the encodings that `model` reads, with the widths that it was built for.

        The first graph is passed to the model once, to find which encodings it reads. Until then the transform keeps
        a reference to the model.

        Args:
            model: built by `create_model`, or any module that reads `batch.encoding(name, width)`.
            arguments: encoding -> arguments other than its width, where the defaults are not wanted: {"rrwp":
                {"identity": False}}.
        """
        transform = cls({})
        transform.requests, transform._model = None, model
        transform._given = {find_encoding(name).name: dict(given) for name, given in (arguments or {}).items()}
        return transform

    def forward(self, data: Data) -> Data:
        """`data` with its encodings.

        Raises:
            EncodingError: numbers of edges would be joined wrongly: then apply it to the batch.
        """
        if self.requests is None:
            assert self._model is not None  # set by the first call
            self.requests, self._model = needs(self._model, data, self._given), None
        graphs = _content(data)
        for name, arguments in self.requests.items():
            offsets = ENCODINGS[name].offsets
            if offsets and not isinstance(data, Batch):
                raise EncodingError(
                    f"encoding {name!r} numbers edges ({', '.join(offsets)}), which a DataLoader does not shift: "
                    "apply the transform to each batch instead: `for batch in loader: batch = transform(batch)`"
                )
            for array, values in compute(name, data, graphs=graphs, **arguments).items():
                setattr(data, array, values)
        return data

    def __repr__(self) -> str:
        of = f"what {type(self._model).__name__} reads" if self.requests is None else self.requests
        return f"AddEncodings({of})"


def needs(model: nn.Module, data: Data | GraphBatch, given: Requests | None = None) -> Requests:
    """The encodings that `model` reads of the graph `data`, with the arguments that give the requested widths.

    One forward pass.
    """
    weight = next(model.parameters(), torch.empty(0))
    batch = GraphBatch.of(data)
    probe = cast(
        _Probe, _Probe(**{field.name: getattr(batch, field.name) for field in fields(batch)}).to(weight.device)
    )
    probe.requests, probe.given = {}, given or {}
    training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            model(probe)
    finally:
        for module, before in training:
            module.training = before
    return probe.requests


class _Probe(GraphBatch):
    """A batch that computes an encoding when it is requested, and remembers the request."""

    requests: Requests
    given: Requests

    def encoding(self, name: str, width: int | None = None) -> Tensor:
        wanted = [e for e in ENCODINGS.values() if name in e.arrays]
        encoding = next((e for e in wanted if e.name in self.given), wanted[0] if wanted else None)
        if encoding is not None and name not in self.encodings:
            arguments = _wide_enough(encoding, name, width or 1, self.given.get(encoding.name, {}))
            before = self.requests.get(encoding.name, arguments)
            # one encoding may give two arrays of different widths: the wider request serves both
            self.requests[encoding.name] = max(arguments, before, key=lambda a: encoding.widths(**a)[name])
            values = compute(
                encoding.name, self, dtype=self.x.dtype if self.x.is_floating_point() else torch.float32, **arguments
            )[name]
            return values if width is None else values[..., :width]
        return super().encoding(name, width)


def _wide_enough(encoding: Encoding, array: str, width: int, given: Arguments) -> dict[str, Any]:
    """Arguments with which `array` has `width` channels or a few more.

    Raises:
        EncodingError: no size gives them.
    """
    sizes = [
        key
        for key, parameter in encoding.parameters.items()
        if parameter.default is parameter.empty and key not in given
    ]
    for size in range(1, width + 1) if sizes else [0]:
        arguments = encoding.arguments({**given, **dict.fromkeys(sizes, size)})
        if encoding.widths(**arguments)[array] >= width:
            return arguments
    raise EncodingError(
        f"encoding {encoding.name!r} with {given} gives fewer than the {width} channels of {array!r} that the model "
        "reads"
    )


def _content(data: Data) -> Tensor:
    """Ids of the graphs by their edges, long [B], so that the same is drawn for a graph alone and in every batch."""
    batch = GraphBatch.of(data).to("cpu")
    graph = batch.batch[batch.edge_index[0]]
    by_graph = (batch.edge_index - batch.ptr[graph])[:, graph.argsort(stable=True)]
    parts = by_graph.split(torch.bincount(graph, minlength=batch.num_graphs).tolist(), 1)
    sizes = batch.sizes.tolist()
    return torch.tensor(
        [zlib.crc32(edges.contiguous().numpy().tobytes(), size) for edges, size in zip(parts, sizes, strict=True)],
        dtype=torch.long,
    )
