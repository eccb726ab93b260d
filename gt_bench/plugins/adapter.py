"""A plain nn.Module as a model of the benchmark. Its hyperparameters are the arguments of its constructor.

The input is a torch_geometric `Batch` with `x` float [N, F] (categories one-hot, column by column), `edge_index`,
`edge_attr` float [E, D] or none, `batch`, `ptr`, and the encodings of the recipe by their names; never the targets.
`forward(self, data)` gets the whole batch; `forward(self, x, edge_index)` gets the named parts.
"""

import inspect
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from gt_bench.plugins.model_errors import OwnModelError, where
from gt_bench.runtime.signals import Stopped
from gt_bench.training.failures import is_out_of_memory, one_row
from gt_bench.utils.errors import UserError
from gt_models.batch import GraphBatch
from gt_models.encodings import ENCODINGS

if TYPE_CHECKING:
    from torch_geometric.data import Data

# names of constructor arguments for values of the dataset
GIVEN = {
    "in_dim": ("in_dim", "in_channels", "in_features", "input_dim", "num_features", "num_node_features"),
    "out_dim": ("out_dim", "out_channels", "out_features", "output_dim", "num_classes", "num_outputs"),
    "edge_dim": ("edge_dim", "edge_channels", "num_edge_features"),
    "level": ("level",),
}
# names that forward may have instead of the whole batch
PARTS = ("x", "edge_index", "edge_attr", "batch", "ptr", "num_graphs")


class PlainModel(nn.Module):
    """Wraps a plain module in the interface of the benchmark's models; `adapted` makes a subclass for each class."""

    plain: ClassVar[type[nn.Module]]
    arguments: ClassVar[tuple[str, ...]]
    places: ClassVar[dict[str, str]]  # value of the dataset -> the constructor's name for it
    parts: ClassVar[tuple[str, ...] | None]  # what forward names; None: the whole batch

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: str,
        edge_dim: int | Sequence[int] | None = None,
        **arguments: Any,
    ):
        super().__init__()
        self.in_dim, self.out_dim, self.level, self.edge_dim = in_dim, out_dim, level, edge_dim
        widths = {
            "in_dim": _width(in_dim),
            "out_dim": out_dim,
            "level": level,
            "edge_dim": None if edge_dim is None else _width(edge_dim),
        }
        given = {name: widths[what] for what, name in self.places.items()}
        try:
            self.model = self.plain(**given, **arguments)
        except Stopped:
            raise
        except (Exception, SystemExit) as error:  # whatever a user's constructor may raise
            said = ", ".join(f"{key}={value!r:.200}" for key, value in (given | arguments).items())
            problem = f"{self.plain.__name__}({said}) raises {_text(error)}"
            raise OwnModelError(problem, **where(self.plain, "__init__", error)) from error
        if lazy := [
            name for name, parameter in self.model.named_parameters() if isinstance(parameter, UninitializedParameter)
        ]:
            raise OwnModelError(
                f"{self.plain.__name__} has lazy layers ({', '.join(lazy)}), whose size is not known before data come",
                **where(self.plain, "__init__"),
                value=lazy,
                remedy=f"write it: torch.nn.Linear({self._name('in_dim')}, ...)",
            )
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise OwnModelError(
                f"{self.plain.__name__} has no parameter to train",
                **where(self.plain, "__init__"),
                remedy=f"expected layers as attributes: self.head = torch.nn.Linear(..., {self._name('out_dim')}); a "
                "list of layers is a torch.nn.ModuleList",
            )
        self._seen, self._due = False, True
        # layers of torch_geometric that keep what they compute from the first graph
        self._caches = [type(module).__name__ for module in self.model.modules() if _caches_its_graph(module)]
        self._graph: tuple[int, int] | None = None
        self._edges: Tensor | None = None

    def train(self, mode: bool = True) -> "PlainModel":
        """Sets the mode as in every module. The next forward is checked for changes to its data."""
        self._due = True
        return super().train(mode)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the output of the plain module, one row per graph, node or pair.

        Raises:
            OwnModelError: the module raises an exception, or its output has a wrong shape; names the line.
        """
        batch = GraphBatch.of(batch)
        data = self._data(batch)
        due, self._due = self._due, False
        self._check_caches(batch)
        given = {
            n: (v, v._version, _content(v) if due else None) for n, v in data.to_dict().items() if isinstance(v, Tensor)
        }
        try:
            output = (
                self.model(data)
                if self.parts is None
                else self.model(**{name: getattr(data, name) for name in self.parts})
            )
        except (Exception, SystemExit) as error:
            if isinstance(error, UserError | Stopped) or is_out_of_memory(error):
                raise
            asked = [key for key in ENCODINGS if any(f"'{array}'" in str(error) for array in ENCODINGS[key].arrays)]
            remedy = f"it was given {_described(data)}"
            if advice := one_row(error):
                remedy = f"{advice}; {remedy}"
            elif asked:
                how = f"add --set encodings.{asked[0]}.KEY=... (in a recipe under encodings)"
                remedy = f"it asks for an encoding: {how}; {remedy}"
            raise OwnModelError(_text(error), **where(self.plain, "forward", error), remedy=remedy) from error
        if changed := [
            n for n, (v, version, content) in given.items() if v._version != version or (due and _content(v) != content)
        ]:
            raise OwnModelError(
                f"{self.plain.__name__} changes data.{changed[0]} in place, and so the data of every later step",
                **where(self.plain, "forward"),
                value=changed[0],
                remedy="write a new tensor: x = x + y for x += y, no inplace=True on what the data give, and a copy "
                "for .data or .numpy()",
            )
        return self._checked(output, batch)

    def _check_caches(self, batch: GraphBatch) -> None:
        """Raises OwnModelError if a layer would use what it computed from another graph than this one."""
        if not self._caches or self._edges is batch.edge_index:
            return
        graph = (batch.num_nodes, _content(batch.edge_index))
        if self._graph not in (None, graph):
            raise OwnModelError(
                f"{self.plain.__name__} has {self._caches[0]}(cached=True), which keeps the edges of the first graph, "
                "but this run has several graphs (batches, parts, or inductive parts), and all others would get wrong "
                "edges",
                **where(self.plain, "__init__"),
                value=self._caches[0],
                remedy="remove cached=True",
            )
        self._graph, self._edges = graph, batch.edge_index

    def _data(self, batch: GraphBatch) -> "Data":
        from torch_geometric.data import Batch  # as long to import as torch itself, and most models need none of it

        dtype = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
        x, edges = _columns(batch.x, self.in_dim, dtype), batch.edge_attr
        edges = None if edges is None else _columns(edges, self.edge_dim, dtype)
        others = {name: value for name, value in (batch.encodings | batch.extras).items()}
        return Batch(x=x, edge_index=batch.edge_index, edge_attr=edges, batch=batch.batch, ptr=batch.ptr, **others)

    def _checked(self, output: object, batch: GraphBatch) -> Tensor:
        """Returns `output` in the shape of the task. Checks the shape in every step, and for NaN in the first."""
        rows, what = (batch.num_graphs, "graph") if self.level == "graph" else (batch.num_nodes, "node")
        if isinstance(output, Tensor) and output.shape == (rows,) and self.out_dim == 1:
            output = output[:, None]
        if not isinstance(output, Tensor) or output.shape != (rows, self.out_dim) or not output.is_floating_point():
            came = (
                f"{str(output.dtype).removeprefix('torch.')} {list(output.shape)}"
                if isinstance(output, Tensor)
                else type(output).__name__
            )
            pool = (
                self.level == "graph"
                and isinstance(output, Tensor)
                and output.dim() == 2
                and len(output) == batch.num_nodes
            )
            remedy = (
                "return torch_geometric.nn.global_mean_pool(h, data.batch) through a Linear"
                if pool
                else f"end in nn.Linear(..., {self._name('out_dim')})"
            )
            raise OwnModelError(
                f"{self.plain.__name__} returned {came}",
                **where(self.plain, "forward"),
                value=came,
                remedy=f"expected floating-point numbers of shape [{rows}, {self.out_dim}]: a row per {what}, a column "
                f"per class or target; {remedy}",
            )
        if self.training and torch.is_grad_enabled() and not output.requires_grad:
            raise OwnModelError(
                f"{self.plain.__name__} returned what has no gradient, so that nothing can be learnt",
                **where(self.plain, "forward"),
                remedy="expected an output of its layers: look for .detach(), .data, numpy or torch.no_grad()",
            )
        if not self._seen:
            if not bool(output.isfinite().all()):
                bad = int((~output.isfinite()).sum())
                raise OwnModelError(
                    f"{self.plain.__name__} returned {bad} of {output.numel()} numbers that are NaN or infinite before "
                    "any training",
                    **where(self.plain, "forward"),
                    value=bad,
                    remedy="expected finite ones: look for a division by a count that is 0 (a node without edges), a "
                    "log or a root",
                )
            self._seen = True
        return output

    def _name(self, what: str) -> str:
        return self.places.get(what, str(self.out_dim))


def adapted(plain: type[nn.Module]) -> type[PlainModel]:
    """Returns the class of `plain` for the registry.

    Raises:
        OwnModelError: the constructor or forward cannot be called.
    """
    signature = _signature(plain)
    places = {what: name for what, names in GIVEN.items() for name in names if name in signature.parameters}
    own = [
        p
        for p in signature.parameters.values()
        if p.name not in places.values() and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    fixed = [inspect.Parameter(what, inspect.Parameter.KEYWORD_ONLY, annotation=Any) for what in GIVEN]
    hyper = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_annotation(p)) for p in own]
    body = {
        "plain": plain,
        "places": places,
        "arguments": tuple(p.name for p in own),
        "parts": _parts(plain),
        "__doc__": plain.__doc__,
        "__module__": plain.__module__,
        "__signature__": inspect.Signature([*fixed, *hyper]),
    }
    return type(plain.__name__, (PlainModel,), body)


def unfilled(cls: type[nn.Module], given: Sequence[str]) -> None:
    """Raises OwnModelError if neither the dataset nor `given` fills an argument without default of the constructor."""
    if not issubclass(cls, PlainModel):
        return
    for name in cls.arguments:
        if inspect.signature(cls).parameters[name].default is inspect.Parameter.empty and name not in given:
            known = "; ".join(
                f"{what} (or {', '.join(names[1:])})" if names[1:] else what for what, names in GIVEN.items()
            )
            raise OwnModelError(
                f"{cls.plain.__name__} needs the argument {name!r:.200}, and nothing gives it: a dataset gives {known}",
                **where(cls.plain, "__init__"),
                value=name,
                remedy=f"write a default, {name}=..., or add --set model.{name}=... (in a recipe: model: "
                f"{{{name}: ...}})",
            )


def _signature(plain: type[nn.Module]) -> inspect.Signature:
    try:
        return inspect.signature(plain, eval_str=True)
    except (NameError, SyntaxError, TypeError):  # annotations that name what is not imported
        return inspect.signature(plain)


def _annotation(parameter: inspect.Parameter) -> Any:
    """Returns the type that values are checked for: the annotation, else the type of the default; float accepts int."""
    if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    kind = type(parameter.default)
    return {bool: bool, int: Annotated[Any, AfterValidator(_number)], float: float, str: str}.get(kind, Any)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number")
    return value


def _parts(plain: type[nn.Module]) -> tuple[str, ...] | None:
    """Returns what `forward` names of the data; None if it has one argument, the batch."""
    parameters = list(inspect.signature(plain.forward).parameters.values())[1:]
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if len(needed) == 1 and (needed[0] not in PARTS or needed[0] == "batch"):  # no model reads the batch vector alone
        return None
    if needed and set(needed) <= set(PARTS):
        optional = [p.name for p in parameters if p.default is not p.empty and p.name in ("batch", "edge_attr")]
        return (*needed, *optional)
    raise OwnModelError(
        f"{plain.__name__}.forward takes {', '.join(p.name for p in parameters) or 'nothing'}",
        **where(plain, "forward"),
        remedy=f"expected one argument, a torch_geometric Batch, or names among {', '.join(PARTS)}; write def "
        "forward(self, data):",
    )


def _content(value: Tensor) -> int:
    """Returns a checksum: writes through `.data` or NumPy do not raise the version of a tensor."""
    return (
        zlib.crc32(value.detach().cpu().contiguous().view(-1).numpy().data)
        if value.numel() and not value.is_sparse
        else 0
    )


def _caches_its_graph(module: nn.Module) -> bool:
    own = getattr(module, "cached", None) is True
    return own and any(base.__module__.startswith("torch_geometric.") for base in type(module).__mro__)


def _width(dim: int | Sequence[int]) -> int:
    return dim if isinstance(dim, int) else sum(dim)


def _columns(values: Tensor, dim: int | Sequence[int] | None, dtype: torch.dtype) -> Tensor:
    """Returns continuous features as they are, categories one-hot: [N, F]."""
    if dim is None or isinstance(dim, int):
        return values.to(dtype)
    return torch.cat([nn.functional.one_hot(values[:, i].long(), size) for i, size in enumerate(dim)], 1).to(dtype)


def _described(data: "Data") -> str:
    shapes = [
        f"{key} {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        for key, value in data.to_dict().items()
        if isinstance(value, Tensor)
    ]
    return ", ".join(shapes)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
