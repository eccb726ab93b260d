"""User-supplied data whose targets belong to edges: classes or numbers of edges, and link prediction.

Tables of the packed dataset, next to those of `gt_bench.data.packed`:

    target_pair [L, 2]   nodes of each target, with ids over all graphs
    target_edge [L]      edge of each target, for its features (classes and numbers of edges)
    link [E]             target of each edge, -1 for self-loops, which are no targets (link prediction)
    protocol [3]         negatives per edge on validation and test, seed of the dataset, 1 if edges have no direction

In link prediction, repeated edges are one target, and so are both directions of an undirected edge. An edge of the
validation or test part is therefore absent from the training graph in each of its copies.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from gt_bench.data.custom.readers import Reader
from gt_bench.data.custom.remarks import PARTS
from gt_bench.data.custom.summary import Summary
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

LINK = "link-prediction"
NEGATIVES = 100  # per edge on validation and test, if the dataset gives no number


class EdgeSummary(Summary):
    """Summary of data whose targets belong to edges. Arguments are those of `Summary`.

    Attributes:
        sizes: number of nodes of each graph.
        ends: nodes of all edges, with ids over all graphs, long [2, e] for each block.
        rows: edge of each row of targets, long for each block.
    """

    def __init__(self, spec: DatasetSpec, reader: Reader):
        super().__init__(spec, reader)
        self.links = spec.task == LINK
        self.sizes = np.zeros(0, np.int64)
        self.rows: list[np.ndarray] = []

    def add(self, block: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add a block; see `Summary.add`. The result has only the arrays that are stored."""
        found = super().add(block)
        sizes = np.asarray(block["num_nodes"], np.int64)
        first = self.sizes.sum() + sizes.cumsum() - sizes  # first node of each graph
        self.rows.append(sum(ends.shape[1] for ends in self.ends) + block["target"])
        self.ends.append(block["edge_index"].astype(np.int64) + np.repeat(first, block["num_edges"]))
        self.sizes = np.concatenate([self.sizes, sizes])
        return {key: value for key, value in found.items() if key != "target" and not (self.links and key == "y")}

    @property
    def undirected(self) -> bool:
        """Whether every edge has its reverse: then edges have no direction."""
        return self.edges.one_way == 0

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
                raise DatasetError(f"{self.name}: there is no edge between two different nodes to predict")
            split = self._given_to_links() if self.keeps_split else self._random_codes(count)
            self._check_negatives(split)
            return split
        if self.keeps_split:
            return super().split()
        labelled = np.flatnonzero(self._labelled)
        pairs = np.sort(np.concatenate(self.ends, axis=1)[:, np.concatenate(self.rows)[labelled]], axis=0)
        _, pair = np.unique(pairs[0] * self.sizes.sum() + pairs[1], return_inverse=True)
        codes = self._random_codes(int(pair.max(initial=-1)) + 1)[:, pair]
        split = np.zeros((len(codes), len(self._labelled)), codes.dtype)
        split[:, labelled] = codes
        return split

    def tables(self) -> dict[str, np.ndarray]:
        """Make the tables of the packed dataset; see this module."""
        negatives = self.spec.arguments.get("negatives") or 0
        tables = {"protocol": np.array([negatives, self.reader.seed, int(self.undirected)], np.int64)}
        if self.links:
            pairs, link = self._links
            return tables | {"target_pair": pairs, "link": link}
        rows = np.concatenate(self.rows)
        return tables | {"target_pair": np.concatenate(self.ends, axis=1)[:, rows].T, "target_edge": rows}

    def remarks(self, split: np.ndarray) -> list[str]:
        """Make remarks for the user; see `Summary.remarks`."""
        if not self.links:
            return [*super().remarks(split), *self._scattered(split)]
        found = [line for key, columns in self.columns.items() for line in columns.remarks(key)]
        found = [*([] if self._is_csv else found), *self.edges.remarks()]
        pairs, link = self._links
        if loops := int((link < 0).sum()):
            found.append(f"{loops:,} self-loops are no targets and are in every training graph")
        if not self.undirected:
            keys = pairs[:, 0] * self.sizes.sum() + pairs[:, 1]
            mutual = int(np.isin(pairs[:, 1] * self.sizes.sum() + pairs[:, 0], keys).sum())
            if mutual:
                found.append(
                    f"{mutual:,} of {len(pairs):,} edges have their reverse: each direction is a target, and a "
                    "training graph may contain the other one; if edges have no direction, pass --undirected"
                )
        return found

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
        of_row = link[np.concatenate(self.rows)]
        codes, of_row = codes[:, of_row >= 0], of_row[of_row >= 0]
        split = np.zeros((len(codes), len(pairs)), np.uint8)
        for number, row in enumerate(codes):
            split[number, of_row] = row
            if (wrong := np.flatnonzero(split[number, of_row] != row)).size:
                one = of_row[wrong[0]]
                parts = " and ".join(("none", *PARTS)[code] for code in sorted(set(row[of_row == one].tolist())))
                graph = int(np.searchsorted(self.sizes.cumsum(), pairs[one, 0], side="right"))
                local = pairs[one] - self.sizes[:graph].sum()
                place = f" of graph {graph}" if len(self.sizes) > 1 else ""
                raise DatasetError(
                    f"{self.name}: the edges between the nodes {local[0]} and {local[1]}{place} (numbered from 0 in "
                    f"the order of rows) are in several parts of split {number}: {parts}; give all copies"
                    f"{' and both directions' if self.undirected else ''} of an edge the same part"
                )
        return split

    def _check_negatives(self, split: np.ndarray) -> None:
        """Raise DatasetError if each end of an edge on validation or test has an edge with all other nodes."""
        pairs, total = self._links[0], int(self.sizes.sum())
        out, into = (np.bincount(column, minlength=total) for column in pairs.T)
        if self.undirected:
            out = into = out + into
        others = np.repeat(self.sizes, self.sizes) - 1
        full = (out == others)[pairs[:, 0]] & (into == others)[pairs[:, 1]]
        if (wrong := np.flatnonzero(full & (split > 1).any(0))).size:
            raise DatasetError(
                f"{self.name}: {wrong.size:,} edges on validation or test have no negative: both of their nodes are "
                "connected to all other nodes of the graph; name a split with these edges in the train part, or with "
                "split none"
            )

    def _scattered(self, split: np.ndarray) -> Sequence[str]:
        """Make a remark if edges between the same two nodes are in several parts of a split."""
        pairs = np.sort(np.concatenate(self.ends, axis=1)[:, np.concatenate(self.rows)], axis=0)
        keys, pair = np.unique(pairs[0] * self.sizes.sum() + pairs[1], return_inverse=True)
        counts = []
        for row in split:
            parts = np.stack([np.bincount(pair, row == code, len(keys)) > 0 for code in (1, 2, 3)])
            counts.append(int((parts.sum(0) > 1).sum()))
        if not any(counts):
            return ()
        number = int(np.flatnonzero(counts)[0])
        return (
            f"{counts[number]:,} pairs of nodes have edges in several parts of split {number}; if these have the same "
            "target, the training part contains targets of the other parts",
        )


def summary_of(spec: DatasetSpec, reader: Reader) -> Summary:
    """Return an empty summary of the kind that the level of a dataset needs."""
    return EdgeSummary(spec, reader) if spec.level == "edge" else Summary(spec, reader)
