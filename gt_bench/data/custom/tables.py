"""Open tables of nodes, edges and graphs with their types: CSV, Parquet, DataFrames, networkx graphs.

pandas parses CSV with the options of the description; Parquet and DataFrames keep their types. Nothing is guessed: a
separator, a decimal mark or an index that would have to be guessed is an error that names the option.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gt_bench.data.custom.description import TABLES, Description
from gt_bench.data.readers import dataset_errors, located
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import shown

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

FORM = 'a DataFrame per table: {"nodes": ..., "edges": ...}, for targets of graphs also "graphs"'
_INVISIBLE = re.compile("[\u200b-\u200d\u2060\ufeff\u00ad]")


@dataclass
class Table:
    """A table of typed columns.

    Attributes:
        name: nodes, edges or graphs.
        path: its file, or its name for error messages.
        frame: its columns.
        lines: where each row is, for error messages.
        unit: what `lines` counts.
    """

    name: str
    path: Path
    frame: pd.DataFrame
    lines: Sequence[int] = ()
    unit: str = "row"
    _typed: dict[str, tuple[str, pd.Series]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.frame.columns)

    def at(self, row: int | None = None, column: str | None = None) -> dict[str, str]:
        """Return file and place of a row, a column or a cell, as arguments of DatasetError."""
        line = None if row is None else f"{self.unit} {self.lines[row] if len(self.lines) else row}"
        place = ": ".join(part for part in (line, column and f"column {shown(column)}") if part)
        return {"file": str(self.path), "place": place}

    def typed(self, column: str) -> tuple[str, pd.Series]:
        """Return a column and its type.

        Returns:
            "integer" (Int64), "number" (float64), "word" (text or None), "category" (a categorical type, as objects),
            or "date" (datetime64).

        Raises:
            DatasetError: a cell is not a single value, or cells have several types.
        """
        if column not in self._typed:
            self._typed[column] = self._type(column)
        return self._typed[column]

    def _type(self, column: str) -> tuple[str, pd.Series]:
        import pandas as pd
        from pandas.api import types

        series = self.frame[column]
        if isinstance(series.dtype, pd.CategoricalDtype):
            return "category", series.astype(object).where(series.notna(), None)
        if types.is_bool_dtype(series.dtype) or types.is_integer_dtype(series.dtype):
            return "integer", series.astype("Int64")
        if types.is_float_dtype(series.dtype):
            return "number", pd.Series(series.to_numpy(dtype=np.float64, na_value=np.nan))
        if types.is_datetime64_any_dtype(series.dtype):
            dates = series.dt.tz_convert("UTC").dt.tz_localize(None) if series.dt.tz is not None else series
            return "date", dates
        kind = types.infer_dtype(series, skipna=True)
        if kind == "string":
            words = [None if pd.isna(cell) else readable(cell) for cell in series]
            return "word", pd.Series(words, dtype=object)
        if kind in ("boolean", "integer"):
            return "integer", series.astype("Int64")
        if kind in ("empty", "floating", "mixed-integer-float", "decimal"):
            return "number", pd.Series([np.nan if pd.isna(cell) else float(cell) for cell in series], dtype=np.float64)
        if kind in ("date", "datetime", "datetime64"):
            return "date", pd.to_datetime(series, utc=True).dt.tz_localize(None)
        row, cell = next(
            ((row, cell) for row, cell in enumerate(series) if not isinstance(cell, str | int | float)), (0, series[0])
        )
        raise DatasetError(
            f"is a {type(cell).__name__} ({shown(repr(cell))}) in a column of {kind}",
            **self.at(row, column),
            value=cell,
            remedy="write one number or word per cell, all of one type, and a vector as one column per entry",
        )


def readable(cell: str) -> str:
    """Return a word in NFC, without invisible characters, with plain spaces."""
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFC", cell)).split())


def read_folder(folder: Path, description: Description) -> dict[str, Table]:
    """Read the tables of a folder: nodes, edges and, if it is there, graphs, each as .csv or .parquet.

    Args:
        folder: the folder.
        description: how CSV files are read.

    Returns:
        The tables by name.

    Raises:
        DatasetError: a file is missing or invalid. The message names file, line and column.
    """
    tables = {}
    for name in TABLES:
        text, binary = folder / f"{name}.csv", folder / f"{name}.parquet"
        if text.exists() and binary.exists():
            raise DatasetError(f"has {text.name} and {binary.name}", file=folder, remedy="remove one")
        if text.exists():
            tables[name] = _read_csv(text, name, description)
        elif binary.exists():
            from pyarrow import parquet

            with dataset_errors(binary, "not a readable Parquet file"):
                tables[name] = _from_arrow(parquet.read_table(binary), name, binary, description)
        elif name != "graphs":
            remedy = "a folder needs nodes.csv, edges.csv and, for targets of graphs, graphs.csv (or these as .parquet)"
            raise DatasetError("no such file", file=text, remedy=remedy)
    return tables


def _read_csv(path: Path, name: str, description: Description) -> Table:
    import pandas as pd

    encoding, sep = description.encoding or "utf-8-sig", description.sep or ","
    with dataset_errors(path, "cannot be read", (OSError,)):
        content = path.read_bytes()
    try:
        text = content.decode(encoding)
    except (UnicodeError, LookupError) as error:
        raise DatasetError(
            f"cannot be read as {encoding.removesuffix('-sig')} ({error})",
            file=path,
            remedy="name its encoding: --encoding latin-1 (or utf-16, cp1252, ...)",
        ) from None
    if "\0" in text:
        raise DatasetError("contains a zero byte", file=path, remedy="if it is UTF-16 or UTF-32: --encoding utf-16")
    if text.startswith("#"):
        raise DatasetError("begins with #", file=path, place="line 1", remedy="remove the lines of comments")
    try:
        rows = _rows(text, sep)
    except csv.Error as error:
        remedy = "close each quoted cell, and double the quotes in it"
        raise DatasetError(f"cannot be read ({error})", file=path, remedy=remedy) from error
    if not rows:
        raise DatasetError("is empty", file=path, remedy="the first line must name the columns")
    names = [cell.strip() for cell in rows[0][1]]
    _check_names(path, names, rows[0][1], sep)
    for line, row in rows[1:]:
        if len(row) != len(names):
            raise DatasetError(
                f"has {len(row)} columns, line 1 names {len(names)}",
                file=path,
                place=f"line {line}",
                remedy=f"columns are separated by {sep!r} (--sep), and a cell that contains it needs quotes",
            )
    blank = set(range(rows[0][0] + 1, rows[-1][0])) - {line for line, _ in rows} if len(names) == 1 else set()
    if blank and not any("\n" in row[0] for _, row in rows):
        remedy = "write nan for a missing value, or remove the line"
        raise DatasetError("is empty", file=path, place=f"line {min(blank)}", remedy=remedy)
    with dataset_errors(path, "not a readable table"):
        frame = pd.read_csv(
            io.StringIO(text),
            sep=sep,
            decimal=description.decimal or ".",
            thousands=description.thousands,
            skipinitialspace=True,
            na_values=list(description.missing or ()) or None,
            keep_default_na=description.missing is None,
            dtype_backend="numpy_nullable",
            float_precision="round_trip",
            low_memory=False,
            index_col=False,
        )
    frame.columns = names
    return Table(name, path, frame, [line for line, _ in rows[1:]], "line")


def _rows(text: str, sep: str) -> list[tuple[int, list[str]]]:
    """Return the line at which each row begins, and its cells. Blank lines are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sep, strict=True, skipinitialspace=True)
    rows, line = [], 1
    for row in reader:
        if row:
            rows.append((line, row))
        line = reader.line_num + 1
    return rows


def _check_names(path: Path, names: Sequence[str], header: Sequence[str], sep: str) -> None:
    if len(names) == 1 and (other := next((c for c in ";\t| ,:" if c in header[0].strip()), None)):
        named = "tab" if other == "\t" else f"'{other}'"
        raise DatasetError(
            f"is one column {shown(names[0])!r}, separated by {sep!r}",
            file=path,
            place="line 1",
            remedy=f"if columns are separated by {named}: --sep {named}",
        )
    _check_unique(path, names)
    if all(re.fullmatch(r"[+-]?\d*[.,]?\d+", name) for name in names):
        remedy = "add a line of names"
        raise DatasetError("has numbers, expected names of columns", file=path, place="line 1", remedy=remedy)


def _check_unique(path: Path, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if not name or re.fullmatch(r"Unnamed: \d+(\.\d+)?|__index_level_\d+__", name):
            raise DatasetError(
                "has no name",
                file=path,
                place=f"column {number + 1}",
                remedy="name it; if it is the index of a DataFrame, write it with index=False (R: row.names=FALSE); "
                "if it is empty, remove the separator at the end of each line",
            )
        if names.count(name) > 1:
            raise DatasetError(f"duplicate column {name!r}", file=path, value=name, remedy="rename one")


def tables_of(data: Any, where: str, description: Description) -> dict[str, Table] | None:
    """Take data that are tables.

    Args:
        data: a mapping of DataFrames, a networkx graph, a list of networkx graphs, or anything else.
        where: name of the data for error messages.
        description: names the column of identifiers.

    Returns:
        Tables by name: nodes, edges and, for targets of graphs, graphs. None if `data` are something else.

    Raises:
        DatasetError: a table is missing or unknown.
    """
    if _is_frame(data):
        problem = f"one {type(data).__name__} is not a graph, which has nodes and edges"
        raise DatasetError(problem, file=where, remedy=f"expected {FORM}")
    if isinstance(data, Mapping) and not hasattr(data, "edge_index") and not hasattr(data, "stores"):
        wrong = [key for key, frame in data.items() if key not in TABLES or not _is_frame(frame)]
        if wrong or not {"nodes", "edges"} <= set(data):
            kinds = ", ".join(f"{key!r}: {type(frame).__name__}" for key, frame in data.items()) or "nothing"
            remedy = f"expected a Data of torch_geometric, or {FORM}"
            raise DatasetError(f"a mapping of {kinds}", file=where, remedy=remedy)
        return {name: _from_frame(data[name], name, Path(where, name), description) for name in TABLES if name in data}
    several = isinstance(data, list | tuple) and bool(data)
    graphs = list(data) if several else [data]
    return _from_networkx(graphs, where, several) if all(map(_is_networkx, graphs)) else None


def _is_frame(data: Any) -> bool:
    # attributes of the class: those of a LazyFrame resolve its columns
    return type(data).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") and any(
        hasattr(type(data), name) for name in ("columns", "column_names")
    )


def _from_frame(frame: Any, name: str, path: Path, description: Description) -> Table:
    frame = frame.collect() if hasattr(frame, "collect") else frame  # a LazyFrame of polars
    frame = frame.to_arrow() if hasattr(frame, "to_arrow") else frame
    if hasattr(frame, "column_names"):
        return _from_arrow(frame, name, path, description)
    if frame.columns.nlevels > 1:
        raise DatasetError(
            f"columns are a MultiIndex ({frame.columns[0]!r}, ...)",
            file=path,
            remedy="give each column one name: frame.columns = ['_'.join(column) for column in frame.columns]",
        )
    names = [str(column).strip() for column in frame.columns]
    _check_unique(path, names)
    if named := [str(level) for level in frame.index.names if level is not None] or ["MultiIndex"] * (
        frame.index.nlevels > 1
    ):
        remedy = "make it columns with reset_index(), or remove it with reset_index(drop=True)"
        raise DatasetError(f"the index ({', '.join(named)}) is not read", file=path, remedy=remedy)
    _check_index(frame.index, names, name, path, description)
    frame = frame.reset_index(drop=True)
    frame.columns = names
    return Table(name, path, frame)


def _from_arrow(table: Any, name: str, path: Path, description: Description) -> Table:
    """Make a table of one of pyarrow. Integers with missing values stay integers."""
    import pandas as pd
    import pyarrow as pa

    names = [str(column).strip() for column in table.column_names]
    _check_unique(path, names)
    stored = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
    for index in stored.get("index_columns", []):
        if isinstance(index, dict):  # a range of numbers, which is no column
            _check_index(range(index["start"], index["stop"], index["step"]), names, name, path, description)
    integers = {kind: pd.Int64Dtype() for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8())}
    integers |= {pa.uint16(): pd.Int64Dtype(), pa.uint32(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame = table.to_pandas(types_mapper=integers.get, ignore_metadata=True)
    frame.columns = names
    return Table(name, path, frame)


def _check_index(labels: Iterable[Any], names: Sequence[str], table: str, path: Path, description: Description) -> None:
    """Raise DatasetError if rows have other labels than 0, 1, ... and no column identifies them."""
    taken = {"id", *((description.id,) if description.id else ())}
    if table == "edges" or taken & {name if name == description.id else name.lower() for name in names}:
        return
    wrong = next(((row, label) for row, label in enumerate(labels) if not isinstance(label, int) or label != row), None)
    if wrong is not None:
        raise DatasetError(
            f"has the label {shown(wrong[1])} in the index, and without a column id edges name nodes by number of row",
            file=path,
            place=f"row {wrong[0]}",
            value=wrong[1],
            remedy="write reset_index(names='id') if edges name the labels, or reset_index(drop=True)",
        )


# networkx


def _is_networkx(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("adj", "nodes", "is_directed", "edges"))


def _from_networkx(graphs: Sequence[nx.Graph], where: str, several: bool) -> dict[str, Table]:
    """Make tables of attributes. An undirected edge is two rows, a vector one column per entry."""
    import pandas as pd

    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for number, graph in enumerate(graphs):
        numbered = {"graph": number} if several else {}
        with located(where, f"graph {number}" if several else ""):
            if not len(graph):
                raise DatasetError("has no nodes", remedy="remove it")
            plain = all(type(node) is int for node in graph)
            for node, attributes in graph.nodes(data=True):
                key = {"id": node if plain else str(node)}
                rows["nodes"].append(_joined(key | numbered, attributes, f"node {node!r}"))
            for a, b, attributes in graph.edges(data=True):
                for source, target in [(a, b)] if graph.is_directed() or a == b else [(a, b), (b, a)]:
                    ends = {"source": source, "target": target}
                    ends = ends if plain else {key: str(node) for key, node in ends.items()}
                    rows["edges"].append(_joined(numbered | ends, attributes, f"edge {a!r} - {b!r}"))
            if several:
                rows["graphs"].append(_joined({"id": number}, graph.graph, ""))
    tables = {}
    for name in TABLES if several and any(len(row) > 1 for row in rows["graphs"]) else TABLES[:2]:
        first = ["source", "target", *(["graph"] if several else [])] if name == "edges" else []
        names = list(dict.fromkeys([*first, *(key for row in rows[name] for key in row)]))
        cells = {key: pd.Series([row.get(key) for row in rows[name]], dtype=object) for key in names}
        tables[name] = Table(name, Path(where, name), pd.DataFrame(cells, columns=names))
    return tables


def _joined(keys: dict[str, Any], attributes: Mapping[Any, Any], place: str) -> dict[str, Any]:
    row = dict(keys)
    for name, value in attributes.items():
        value = value.tolist() if hasattr(value, "tolist") else value
        vector = isinstance(value, list | tuple)
        for key, entry in [(f"{name}_{i}", entry) for i, entry in enumerate(value)] if vector else [(str(name), value)]:
            if key in keys:
                problem = f"the attribute {key!r} has a reserved name"
                raise DatasetError(problem, place=place, value=key, remedy="rename it")
            row[key] = entry
    return row
