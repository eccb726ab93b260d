"""User-supplied datasets: those in datasets.yaml of the current folder, and entry points of installed packages.

    my-molecules: {source: path/to/folder, task: graph-regression, metric: mae}

A source is a folder of CSV files, an npz file, `file.py:load` or `pyg:Planetoid/Cora`. The group of entry points is
`gt_bench.datasets`.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from gt_bench.config.schema import nearest, read_yaml, validated
from gt_bench.config.tasks import METRICS
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.pyg import Graphs
from gt_bench.data.custom.source import Given, Reader, description_of
from gt_bench.data.spec import DatasetSpec
from gt_bench.runtime.module_loader import function_of, imported, line_in
from gt_bench.runtime.signals import Stopped
from gt_bench.utils.entry_points import described, loaded, package_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import is_plain_name
from gt_bench.utils.json_types import Settings
from gt_bench.utils.user_code import source_digest

GROUP = "gt_bench.datasets"
FILE = Path("datasets.yaml")


class Declaration(Description):
    """A dataset of datasets.yaml.

    Attributes:
        source: as in `gt-bench try`.
        made_from: digest of the content for which the other keys were declared; None for any content.
    """

    source: str
    made_from: str | None = None


def entries() -> Settings:
    """Read datasets.yaml.

    Returns:
        Its entries; empty if there is no such file or it is empty.

    Raises:
        RecipeError: the file is not valid YAML.
    """
    return read_yaml(FILE) if FILE.exists() and FILE.read_bytes().strip() else {}


def declared(name: str) -> DatasetSpec | None:
    """Look up a user-supplied dataset.

    Args:
        name: its name.

    Returns:
        Its spec; None if neither datasets.yaml nor an entry point has this name.

    Raises:
        RecipeError: its entry in datasets.yaml is invalid.
        DatasetError: its source, task or metric is invalid.
    """
    content = entries()
    if name in content:
        entry = validated(Declaration, content[name], FILE, name)
        return spec_of(name, entry)
    providers = list(entry_points(group=GROUP, name=name))
    if len({entry.value for entry in providers}) > 1:
        sources = " and ".join(f"{entry.value} of {package_of(entry)}" for entry in providers)
        problem = f"duplicate dataset {name!r}: {sources} (entry points of group {GROUP})"
        raise DatasetError(problem, value=name, remedy="rename one")
    return _from_entry_point(providers[0]) if providers else None


def spec_of(name: str, entry: Declaration) -> DatasetSpec:
    """Make the spec of an entry of datasets.yaml.

    Args:
        name: name of the dataset.
        entry: the entry.

    Returns:
        The spec.

    Raises:
        DatasetError: its source, task or metric is invalid.
    """
    return spec_from(name, source_of(entry.source), entry, entry.made_from)


def spec_from(name: str, source: Path | Given, options: Description, made_from: str | None = None) -> DatasetSpec:
    """Make the spec of data with what is declared about them; the task is inferred if it is not declared.

    Args:
        name: name of the dataset.
        source: as from `source_of`.
        options: what is declared, in addition to the description beside the data.
        made_from: the content for which it is declared; None for any.

    Returns:
        The spec.

    Raises:
        DatasetError: the data leave the task open, or the source, task or metric is invalid.
    """
    reader = Reader(source, options.over(description_of(source)))
    task = reader.description.task or reader.infer_task()
    metric = reader.description.metric or METRICS.get(task, ("accuracy",))[0]
    spec = custom_dataset(name, source, **options.stated() | {"task": task, "metric": metric})
    bound = replace(spec.arguments["reader"], made_from=made_from, inherited=options)
    if "opened" in vars(reader):
        bound.opened = reader.opened
    return replace(spec, arguments={**spec.arguments, "reader": bound})


def source_of(text: str) -> Path | Given:
    """Parse a source.

    Args:
        text: a path, `file.py:function` or `pyg:Class/Name`.

    Returns:
        A path, or a function that loads the data.

    Raises:
        DatasetError: there is no such file, function or class.
    """
    if text.startswith("pyg:"):
        return _pyg_source(text)
    file, _, function = text.partition(":")
    return _python_source(Path(file), function or "load") if file.endswith(".py") else Path(text)


_PYG_FORM = "write pyg:Class/Name, for example pyg:Planetoid/Cora"


def _pyg_source(text: str) -> Given:
    import torch_geometric
    from torch_geometric import datasets

    kind, _, rest = text.removeprefix("pyg:").partition("/")
    cls = getattr(datasets, kind, None)
    if not inspect.isclass(cls):
        known = [name for name in dir(datasets) if inspect.isclass(getattr(datasets, name))]
        problem = f"torch_geometric.datasets has no {kind!r}{nearest(kind, known)}"
        raise DatasetError(problem, file=text, value=kind, remedy=_PYG_FORM)
    if rest and not all(is_plain_name(part) for part in rest.split("/")):  # becomes a folder below data/pyg
        raise DatasetError(f"{rest!r} is not a name of a dataset", file=text, value=rest, remedy=_PYG_FORM)

    def load() -> Graphs:
        root = str(Path("data/pyg", kind, rest))
        arguments = {"name": rest} if rest else {}
        if "root" in inspect.signature(cls).parameters:
            arguments["root"] = root
        try:
            return cls(**arguments)
        except Exception as error:  # its host may be down, or it needs other arguments
            call = f"{kind}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
            raise DatasetError(
                f"torch_geometric.datasets.{call} raises {type(error).__name__}: {error}",
                file=text,
                remedy="expected a dataset that needs only a name; for other arguments, or if its host is down, write "
                "a function load() in a file and use file.py:load",
            ) from error

    return Given(load, f"{text} torch_geometric {torch_geometric.__version__}", text, fixed=True)


def _python_source(path: Path, function: str) -> Given:
    if not path.is_file():
        raise DatasetError("no such file", file=path)
    target, known = function_of(imported(path.resolve(), str(path)), function)
    if target is None:
        raise DatasetError(
            f"has no function {function!r}{nearest(function, known)}",
            file=path,
            value=function,
            remedy=f"it has: {', '.join(known) or 'none'}; write def load(): return Data(...), or use another "
            f"function: {path}:{(known or ['my_load'])[0]}",
        )
    return Given(_with_user_errors(target, path), _text_of(path, function), f"{path}:{function}", path)


def _text_of(path: Path, function: str) -> str:
    """Return the text that decides the data of a function of a file."""
    digest = source_digest(path)
    return digest if function == "load" else f"{function} {digest}"


def _with_user_errors(function: Callable[[], Graphs], path: Path) -> Callable[[], Graphs]:
    """Wrap a user's function so that its exceptions name file and line."""

    def load() -> Graphs:
        try:
            return function()
        except (DatasetError, Stopped):
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise DatasetError(
                f"{function.__name__}() raises {type(error).__name__}: {error}",
                file=path,
                place=f"line {line_in(path.resolve(), error)}",
                remedy="it must return a Data, a list of Data or a torch_geometric dataset, without arguments",
            ) from error

    return load


def _from_entry_point(entry: EntryPoint) -> DatasetSpec:
    expected = "the result of custom_dataset(...), or a function that returns Data"
    provided = loaded(entry, DatasetError, expected)
    if isinstance(provided, DatasetSpec):
        if provided.name != entry.name:
            problem, remedy = f"is a dataset named {provided.name!r}", "both names must be equal"
            raise DatasetError(problem, file=described(entry), value=provided.name, remedy=remedy)
        return provided
    if not inspect.isfunction(provided):
        problem = f"is a {type(provided).__name__}"
        raise DatasetError(problem, file=described(entry), remedy=f"expected {expected}")
    path = Path(inspect.getfile(provided)).resolve()
    return spec_from(
        entry.name,
        Given(_with_user_errors(provided, path), _text_of(path, provided.__qualname__), entry.value),
        Description(),
    )
