"""Keys of the header of an encoding's file."""

from typing import NotRequired, TypedDict

from gt_bench.utils.json_types import Settings


class ArrayHeader(TypedDict):
    """An array of an encoding: what its rows belong to (node, pair, edge, graph), and the digest of its bytes."""

    rows: str
    shape: list[int]
    dtype: str
    sha256: str


class EncodingHeader(TypedDict):
    """The header of the file of an encoding: dataset, complete arguments, data and algorithm decide the rest.

    `on_the_fly`: why there is a note instead of arrays; `sha256`: of all the other keys.
    """

    dataset: str
    encoding: str
    arguments: Settings
    data: str
    algorithm: str
    digest: NotRequired[str]
    on_the_fly: NotRequired[str]
    arrays: NotRequired[dict[str, ArrayHeader]]
    computed_by: NotRequired[dict[str, str]]
    flags: NotRequired[dict[str, int]]
    sha256: NotRequired[str]
