"""User-supplied data whose targets belong to edges: classes or numbers of edges, and link prediction.

Tables of the packed dataset, next to those of `gt_bench.data.packed`:

    target_pair [L, 2]   nodes of each target, with ids over all graphs
    target_edge [L]      edge of each target, for its features (classes and numbers of edges)
    link [E]             target of each edge, -1 for self-loops, which are no targets (link prediction)
    protocol [3]         negatives per edge on validation and test, seed of the dataset, 1 if edges have no direction
    side [N]             of a graph with two sides, such as users and items: 1 or 2, 0 without an edge (link prediction)

In link prediction, repeated edges are one target, and so are both directions of an undirected edge. An edge of the
validation or test part is therefore absent from the training graph in each of its copies.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from gt_bench.config.tasks import LINK
from gt_bench.data.custom.source import Reader
from gt_bench.data.custom.splits import PARTS, Shares
from gt_bench.data.custom.summary import DataSummary
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

NEGATIVES = 100  # per edge on validation and test, if the dataset gives no number


class EdgeSummary(DataSummary):
    """Summary of data whose targets belong to edges. Arguments are those of `DataSummary`.

    Attributes:
        sizes: number of nodes of each graph.
        ends: nodes of all edges, with ids over all graphs, long [2, e] for each block.
        of_rows: edge of each row of targets, long for each block.
    """

    def __init__(self, spec: DatasetSpec, reader: Reader, shares: Shares, num_splits: int):
        super().__init__(spec, reader, shares, num_splits)
        self.links = spec.task == LINK
        self.sizes = np.zeros(0, np.int64)
        self.of_rows: list[np.ndarray] = []

    def add(self, block: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add a block; see `Summary.add`. The result has only the arrays that are stored."""
        stored = super().add(block)
        sizes = np.asarray(block["num_nodes"], np.int64)
        first = self.sizes.sum() + sizes.cumsum() - sizes  # first node of each graph
        self.of_rows.append(sum(ends.shape[1] for ends in self.ends) + block["target"])
        self.ends.append(block["edge_index"].astype(np.int64) + np.repeat(first, block["num_edges"]))
        self.sizes = np.concatenate([self.sizes, sizes])
        return {key: value for key, value in stored.items() if key != "target" and not (self.links and key == "y")}

    @property
    def undirected(self) -> bool:
        """Whether every edge has its reverse: then edges have no direction, unless it is declared."""
        return self.one_way == 0 and self.reader.description.undirected is not False

    def split(self) -> np.ndarray:
        """Make the splits.

        In drawn splits, all copies and both directions of an edge are in the same part.

        Returns:
            Codes [S, targets] of the data, else drawn ones.

        Raises:
            DatasetError: as `Summary.split`; copies of a link are in several parts; there is no link; or a link to
                predict has no negative.
        """
        if self.links:
            count = len(self._links[0])
            if not count:
                raise DatasetError("there is no edge between two different nodes to predict")
            split = self._given_to_links() if self.keeps_split else self._random_codes(count)
            self._check_negatives(split)
            return split
        if self.keeps_split:
            return super().split()
        labelled = np.flatnonzero(self._labelled)
        pairs = np.sort(np.concatenate(self.ends, axis=1)[:, np.concatenate(self.of_rows)[labelled]], axis=0)
        _, pair = np.unique(pairs[0] * self.sizes.sum() + pairs[1], return_inverse=True)
        codes = self._random_codes(int(pair.max(initial=-1)) + 1)[:, pair]
        split = np.zeros((len(codes), len(self._labelled)), codes.dtype)
        split[:, labelled] = codes
        return split

    def tables(self) -> dict[str, np.ndarray]:
        """Make the tables of the packed dataset; see this module."""
        negatives = self.spec.arguments.get("negatives") or 0
        tables = {"protocol": np.array([negatives, self.seed, int(self.undirected)], np.int64)}
        if self.links:
            pairs, link = self._links
            sides = {} if self._sides is None else {"side": self._sides}
            return tables | {"target_pair": pairs, "link": link} | sides
        rows = np.concatenate(self.of_rows)
        return tables | {"target_pair": np.concatenate(self.ends, axis=1)[:, rows].T, "target_edge": rows}

    def notes(self, split: np.ndarray) -> list[str]:
        """Name what a user of the numbers must know; see `Summary.notes`."""
        if not self.links:
            return super().notes(split)
        notes = []
        _, link = self._links
        if loops := int((link < 0).sum()):
            notes.append(f"{loops:,} self-loops are no targets and are in every training graph")
        if self._sides is not None:
            sizes = np.bincount(self._sides, minlength=3)
            notes.append(
                f"the graph has two sides of {sizes[1]:,} and {sizes[2]:,} nodes: negatives join them"
                + (f"; {sizes[0]:,} nodes without an edge are no negatives" if sizes[0] else "")
            )
        if not self.undirected and (mutual := self.total - self.one_way):
            notes.append(
                f"{mutual:,} of {self.total:,} edges have their reverse: each direction is a target, and a training "
                "graph may contain the other one"
            )
        return notes

    @cached_property
    def _sides(self) -> np.ndarray | None:
        """The side of each node, uint8 [N]: 1 or 2, 0 without an edge. None if the graph has not two sides.

        A graph has two sides if no node is both source and target of edges; or if all edges have their reverse, and
        join two sides only.

        Raises:
            DatasetError: two sides are declared, and the graph does not have them; or its edges are not connected, so
                that it is open which sides belong together.
        """
        declared = self.reader.description.bipartite
        if declared is False or (len(self.sizes) > 1 and not declared):
            return None
        source, target = np.concatenate(self.ends, axis=1)[:, np.concatenate(self.of_rows)]
        side = np.zeros(int(self.sizes.sum()), np.uint8)
        if len(source) and not np.isin(source, target).any():
            side[source], side[target] = 1, 2
            return side
        if self.one_way == 0 and len(source) and len(self.sizes) == 1 and (source != target).all():
            entries = (np.ones(len(source), np.int8), (source, target))
            graph = coo_array(entries, shape=(len(side), len(side))).tocsr()
            _, component = connected_components(graph, directed=False)
            starts = np.unique(source[np.unique(component[source], return_index=True)[1]])
            for start in starts.tolist():
                order, parent = breadth_first_order(graph, start, directed=False)
                side[start] = 1
                for node in order[1:].tolist():
                    side[node] = 3 - side[parent[node]]
            if (side[source] != side[target]).all():
                if len(starts) == 1:
                    return side
                raise DatasetError(
                    f"all edges join two sides, as of users and items, in {len(starts)} parts that are not connected, "
                    "so that it is open which sides belong together",
                    remedy="write each edge once, from one side to the other, and choose: --undirected; or "
                    "--no-bipartite",
                )
        if declared:
            problem = "is declared, but some nodes are source and target of edges"
            raise DatasetError(problem, place="bipartite", remedy="write edges from one side to the other")
        return None

    @cached_property
    def _links(self) -> tuple[np.ndarray, np.ndarray]:
        """The targets of link prediction, [L, 2], and the target of each edge, -1 for self-loops, [E]."""
        source, target = np.concatenate(self.ends, axis=1)
        if self.undirected:
            source, target = np.minimum(source, target), np.maximum(source, target)
        link, proper = np.full(len(source), -1, np.int64), source != target
        total = self.sizes.sum()
        keys, link[proper] = np.unique(source[proper] * total + target[proper], return_inverse=True)
        return np.stack([keys // total, keys % total], axis=1), link

    def _given_to_links(self) -> np.ndarray:
        """Return the codes of the data by link. Raise DatasetError if copies of a link have different codes."""
        pairs, link = self._links
        codes = np.concatenate(self.splits, axis=1)
        of_row = link[np.concatenate(self.of_rows)]
        codes, of_row = codes[:, of_row >= 0], of_row[of_row >= 0]
        split = np.zeros((len(codes), len(pairs)), np.uint8)
        for number, row in enumerate(codes):
            split[number, of_row] = row
            if (wrong := np.flatnonzero(split[number, of_row] != row)).size:
                wrong_link = of_row[wrong[0]]
                parts = " and ".join(("none", *PARTS)[code] for code in sorted(set(row[of_row == wrong_link].tolist())))
                graph = int(np.searchsorted(self.sizes.cumsum(), pairs[wrong_link, 0], side="right"))
                local = pairs[wrong_link] - self.sizes[:graph].sum()
                place = f" of graph {graph}" if len(self.sizes) > 1 else ""
                copies = f"all copies{' and both directions' if self.undirected else ''}"
                raise DatasetError(
                    f"the edges between the nodes {local[0]} and {local[1]}{place} (numbered from 0 in the order of "
                    f"rows) are in several parts: {parts}",
                    place=f"split {number}",
                    remedy=f"give {copies} of an edge the same part",
                )
        return split

    def _check_negatives(self, split: np.ndarray) -> None:
        """Raise DatasetError if each end of an edge on validation or test has an edge with all other nodes."""
        pairs, total = self._links[0], int(self.sizes.sum())
        out, into = (np.bincount(column, minlength=total) for column in pairs.T)
        if self.undirected:
            out = into = out + into
        others = np.repeat(self.sizes, self.sizes) - 1
        if self._sides is not None:
            others = np.bincount(self._sides, minlength=3)[np.array([0, 2, 1])][self._sides]
        full = (out == others)[pairs[:, 0]] & (into == others)[pairs[:, 1]]
        if (wrong := np.flatnonzero(full & (split > 1).any(0))).size:
            raise DatasetError(
                f"{wrong.size:,} edges on validation or test have no negative: both of their nodes are connected to "
                "all other nodes of the graph",
                remedy="name a split with these edges in the train part, or with split none",
            )
