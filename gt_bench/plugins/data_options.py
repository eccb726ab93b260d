"""What a user states about user-supplied data: options of `gt-bench try`, arguments of `gt_bench.evaluate`."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, StrictBool

from gt_bench.config.schema import Strict, validated
from gt_bench.data.custom.splits import SplitSection, section_of
from gt_bench.data.declared import FILE, Entry
from gt_bench.data.spec import DatasetSpec
from gt_bench.schemas import Settings
from gt_bench.utils.errors import DatasetError

Text = Annotated[str, Field(min_length=1)]


class DataOptions(Strict):
    """What a user states about user-supplied data. None: as in datasets.yaml, otherwise decided by the data.

    Attributes:
        task: the task, if it differs from what the targets suggest.
        metric: the metric, if it is not the usual one of the task.
        undirected: whether the reverse of each edge is added where it is missing.
        split: how the data are split; without it, the split of the data, or random ones.
        inductive: whether training sees neither validation nor test nodes.
    """

    task: Text | None = None
    metric: Text | None = None
    undirected: StrictBool | None = None
    split: SplitSection | None = None
    inductive: StrictBool | None = None

    @classmethod
    def parsed(cls, stated: Mapping[str, Any], where: str = "options of the data", split: str = "--split") -> Self:
        """Parses what a user states.

        Args:
            stated: attributes; the split in any form of `gt_bench.data.custom.splits.section_of`.
            where: name of all of them, for messages.
            split: name of the split, for messages.

        Raises:
            DatasetError, RecipeError: a value is invalid; the message names it.
        """
        section = None if stated.get("split") is None else section_of(stated["split"], split)
        return validated(cls, {**stated, "split": section}, where)

    def task_of(self, before: Settings | None) -> str | None:
        """Returns the stated task, otherwise that of an entry of datasets.yaml."""
        return self.task or (before or {}).get("task")

    def section(self, before: Settings | None) -> SplitSection | None:
        """Returns the stated split, otherwise that of an entry of datasets.yaml."""
        known = (before or {}).get("split")
        return self.split or (section_of(known, f"{FILE}: split") if isinstance(known, Mapping) else None)

    def agree(self, known: Entry) -> bool:
        """Returns whether an entry of datasets.yaml has everything that is stated."""
        return all(value in (None, getattr(known, key)) for key, value in self)

    def kept(self, before: Settings | None) -> Settings:
        """Returns the keys of an entry that decide how the data are read: the stated ones, and others of `before`."""
        before = before or {}
        kept: dict[str, Any] = {key: before[key] for key in ("split", "num_splits", "seed") if key in before}
        if self.split is not None:
            kept["split"] = self.split.content()
        for key in ("undirected", "inductive"):
            stated = getattr(self, key)
            if before.get(key) if stated is None else stated:
                kept[key] = True
        return kept

    def check(self, spec: DatasetSpec) -> None:
        """Checks that a dataset has what is stated; a dataset of the benchmark cannot be read in another way.

        Raises:
            DatasetError: it has another task, metric, direction or split.
        """
        for key, has in (("task", spec.task), ("metric", spec.metric)):
            if getattr(self, key) not in (None, has):
                raise DatasetError(
                    f"dataset {spec.name!r} has the {key} {has}, not {getattr(self, key)}: only user-supplied data, "
                    "named by path, can have another"
                )
        reader = spec.arguments.get("reader")
        stored = f"dataset {spec.name!r} is used as it is stored: only user-supplied data, named by path, can be"
        if self.undirected not in (None, getattr(reader, "undirected", None)):
            raise DatasetError(f"{stored} read {'undirected' if self.undirected else 'directed'}")
        if self.split not in (None, getattr(reader, "section", None)):
            raise DatasetError(
                f"dataset {spec.name!r} has its own split: only user-supplied data, named by path, can be split in "
                "another way; without --split it is used as it is"
            )
        if self.inductive not in (None, getattr(reader, "inductive", False)):
            raise DatasetError(f"{stored} trained on {'inductively' if self.inductive else 'transductively'}")
