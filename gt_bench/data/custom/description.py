"""What a user declares about data: `data.yaml` beside the files, options of a command, or an entry of datasets.yaml.

A key that is not declared is decided by reserved names and types (docs/own_data.md). What these leave open is an error
that names the key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool

from gt_bench.config.schema import Strict, read_yaml, validated
from gt_bench.data.custom.splits import SplitSection, section_of

FILE = "data.yaml"
TABLES = ("nodes", "edges", "graphs")


def _names(value: Any) -> Any:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _section(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return SplitSection(kind="random", shares=tuple(value))
    return section_of(value) if isinstance(value, str | Mapping) else value


Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], BeforeValidator(_names), Field(min_length=1)]
Character = Annotated[str, BeforeValidator(lambda v: "\t" if v in ("tab", "\\t") else v), Field(pattern=r"^[^\d\n]$")]


class Description(Strict):
    """What a user declares about data. None: decided by reserved names and types.

    A column is named by itself, or as `TABLE.COLUMN` (edges.kind).

    Attributes:
        id: the column that identifies the rows of nodes.
        graph: the column that names the graph of a row, in each table.
        target: the column with the targets, or several columns of numbers.
        ends: the columns of edges with their two nodes.
        weight: the column of edges with their weight.
        time: the column with the times of a temporal split.
        group: the column with the groups of a grouped split.
        categories: features that are categories although they are numbers.
        numbers: features that are quantities although they look like identifiers.
        drop: columns, or attributes of a Data, that are not used.
        sep: separator of the columns of CSV files.
        decimal: decimal mark of CSV files.
        thousands: thousands separator of CSV files.
        encoding: encoding of CSV files.
        missing: cells of CSV files that mean a missing value, instead of those of pandas.
        undirected: true: the reverse of each edge is added where it is missing; false: edges have a direction.
        first_id: the number of the first node, where nodes are numbered.
        isolated: whether it is meant that most nodes have no edge.
        bipartite: for link prediction: whether negatives join the two sides of the graph.
        task: the task.
        metric: the metric that selects the best epoch.
        split: how the data are split; without it, the split of the data, or random ones.
        num_splits: number of random or grouped splits.
        seed: seed of the first split.
        inductive: whether training sees neither validation nor test nodes.
        negatives: for link prediction: negatives per edge on validation and test.
    """

    id: Text | None = None
    graph: Text | None = None
    target: Names | None = None
    ends: Annotated[Names, Field(min_length=2, max_length=2)] | None = None
    weight: Text | None = None
    time: Text | None = None
    group: Text | None = None
    categories: Names | None = None
    numbers: Names | None = None
    drop: Names | None = None
    sep: Character | None = None
    decimal: Character | None = None
    thousands: Character | None = None
    encoding: Text | None = None
    missing: Names | None = None
    undirected: StrictBool | None = None
    first_id: Literal[0, 1] | None = None
    isolated: StrictBool | None = None
    bipartite: StrictBool | None = None
    task: Text | None = None
    metric: Text | None = None
    split: Annotated[SplitSection | None, BeforeValidator(_section)] = None
    num_splits: int | None = Field(None, ge=1)
    seed: int | None = None
    inductive: StrictBool | None = None
    negatives: int | None = Field(None, ge=1)

    def stated(self) -> dict[str, Any]:
        """Return what is declared, by key."""
        return {key: getattr(self, key) for key in Description.model_fields if getattr(self, key) is not None}

    def over(self, other: "Description") -> "Description":
        """Return `other` with everything that is declared here."""
        return Description(**other.stated() | self.stated())

    def content(self) -> dict[str, Any]:
        """Return what is declared as plain values for YAML and digests."""
        return Description(**self.stated()).model_dump(mode="json", exclude_none=True)

    def declares(self, key: str, table: str, column: str) -> bool:
        """Test whether `key` (drop, categories, ...) names a column."""
        names = getattr(self, key) or ()
        names = (names,) if isinstance(names, str) else names
        return column in names or f"{table}.{column}" in names

    @classmethod
    def parsed(cls, content: Mapping[str, Any], where: str) -> Self:
        """Validate keys and values.

        Args:
            content: keys and values; None is not declared.
            where: name of all of them for messages.

        Raises:
            DatasetError, RecipeError: a key or a value is invalid; the message names it.
        """
        return validated(cls, {key: value for key, value in content.items() if value is not None}, where)


def description_file(source: Path) -> Path:
    """Return the description of a folder (data.yaml), or of a single file (NAME.data.yaml)."""
    return source / FILE if source.is_dir() else source.with_suffix(f".{FILE}")


def described(source: Path | None) -> Description:
    """Read the description beside the data; an empty one if there is none.

    Raises:
        DatasetError, RecipeError: the file is invalid.
    """
    path = description_file(source) if source else None
    return Description.parsed(read_yaml(path), str(path)) if path and path.is_file() else Description()
