"""One graph of users' data in each kind of input: CSV, Parquet, DataFrames, networkx, a Data, an npz file."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data

from gt_bench.data.custom.dataset import check
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.source import Given, Source
from gt_bench.data.declared import spec_from
from gt_bench.data.packed import PackedDataset
from gt_bench.data.spec import DatasetSpec

TABLES = ("csv", "parquet", "frames")
RING = [(i, (i + 1) % 30) for i in range(30)]


def frames(**changed: object) -> dict[str, pd.DataFrame]:
    """30 nodes in a ring, both directions; columns of nodes or, as edges_NAME, of edges replace or extend these."""
    nodes = {"id": np.arange(30), "size": np.linspace(0, 1, 30), "label": np.arange(30) % 2}
    both = [*RING, *((b, a) for a, b in RING)]
    edges = {"source": [a for a, _ in both], "target": [b for _, b in both]}
    for name, column in changed.items():
        table = edges if name.startswith("edges_") else nodes
        table[name.removeprefix("edges_")] = column
    tables = {"nodes": nodes, "edges": edges}
    return {
        name: pd.DataFrame({key: column for key, column in columns.items() if column is not None})
        for name, columns in tables.items()
    }


def source_of(kind: str, tables: dict[str, pd.DataFrame], folder: Path) -> Source:
    """Tables as a source of a kind."""
    if kind == "frames":
        return Given(lambda: tables, repr(tables), "here")
    if kind == "networkx":
        graph = nx.from_pandas_edgelist(tables["edges"], create_using=nx.DiGraph)
        columns = tables["nodes"].set_index("id").to_dict("index")
        graph.add_nodes_from((node, attributes) for node, attributes in columns.items())
        return Given(lambda: graph, "", "here")
    if kind in ("data", "npz"):
        arrays = {
            "x": tables["nodes"][["size"]].to_numpy(),
            "edge_index": tables["edges"][["source", "target"]].to_numpy().T,
            "y": tables["nodes"]["label"].to_numpy(),
        }
        if kind == "data":
            data = Data(**{key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()})
            return Given(lambda: data, "", "here")
        np.savez(folder / "a.npz", **arrays)
        return folder / "a.npz"
    folder = folder / kind
    folder.mkdir(exist_ok=True)
    for name, table in tables.items():
        if kind == "csv":
            table.to_csv(folder / f"{name}.csv", index=False)
        else:
            table.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def read(source: Source, **declared: object) -> DatasetSpec:
    """The spec of data; the task is inferred unless it is declared."""
    spec = spec_from("mine", source, Description.parsed(declared, "test"))
    check(spec)
    return spec


def packed_of(source: Source, folder: Path, **declared: object) -> PackedDataset:
    spec = read(source, **declared)
    spec.prepare(spec, {}, folder / "out")
    return PackedDataset.open(folder / "out")


def options_in(error: BaseException) -> set[str]:
    """The options that an error offers."""
    return set(re.findall(r"--([a-z][a-z-]+)", str(error)))
