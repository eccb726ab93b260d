"""Splits that are drawn for user-supplied data: random, temporal, grouped, k-fold; and what inductive training sees.

In datasets.yaml: `split: {kind: temporal, column: year, cuts: [2018, 2020]}`. In a command:
`--split temporal:year:2018,2020`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from gt_bench.config.schema import RecipeError, Strict, parse_yaml, validated
from gt_bench.utils.errors import DatasetError, nearest
from gt_bench.utils.redact import shown

FORMS = "random[:0.6,0.2,0.2], temporal[:COLUMN[:CUT,CUT]], grouped[:COLUMN[:0.6,0.2,0.2]], k-fold:FOLDS[:VAL] or given"
PARTS = ("train", "val", "test")
Shares = tuple[float, float, float]
Cut = Annotated[int | float | str, BeforeValidator(lambda v: v.isoformat() if isinstance(v, date) else v)]


class SplitSection(Strict):
    """How user-supplied data are split.

    Attributes:
        kind: "random"; "temporal": earliest rows train, latest rows test; "grouped": rows of a group are in one part;
            "k-fold": as many splits as folds, split i tests on fold i; "given": the split of the data. All but "given"
            replace a split that the data have.
        column: of "temporal" the times, of "grouped" the groups: a column of the table with the targets, an attribute
            of a Data, or an array of an npz file, by default `time` or `group`. It is not a feature.
        shares: shares of train, val and test of the rows with a target; by default those of random splits.
        cuts: of "temporal": the time at which val begins, and the time at which test begins, instead of shares.
        folds: number of folds.
        val: of "k-fold": share of validation in the rows that are not in the fold of the test part.
    """

    kind: Literal["random", "temporal", "grouped", "k-fold", "given"]
    column: str | None = None
    shares: Shares | None = None
    cuts: tuple[Cut, Cut] | None = None
    folds: int | None = Field(None, ge=2)
    val: float | None = Field(None, gt=0, lt=1)

    @model_validator(mode="after")
    def _fits_the_kind(self) -> Self:
        if self.kind == "k-fold" and self.folds is None:
            raise ValueError("kind k-fold needs folds")
        allowed = {
            "random": ("shares",),
            "temporal": ("column", "shares", "cuts"),
            "grouped": ("column", "shares"),
            "k-fold": ("folds", "val"),
            "given": (),
        }[self.kind]
        for key in ("column", "shares", "cuts", "folds", "val"):
            if getattr(self, key) is not None and key not in allowed:
                raise ValueError(f"kind {self.kind} has no {key}; it has: {', '.join(allowed) or 'no other keys'}")
        if self.shares and self.cuts:
            raise ValueError("shares and cuts exclude each other; remove one")
        if self.shares and (min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-6):
            hint = ": write 0.6 for 60 %" if abs(sum(self.shares) - 100) < 1 else ""
            raise ValueError(f"shares of train, val and test must be above 0 and add up to 1; got {self.shares}{hint}")
        return self

    def content(self) -> dict[str, Any]:
        """Return the keys that are set, as plain values for YAML and digests."""
        return self.model_dump(mode="json", exclude_none=True)


def section_of(split: str | Mapping[str, Any] | SplitSection) -> SplitSection:
    """Parse a split.

    Args:
        split: a section, its keys, or text such as "temporal:year:2018,2020" or "{kind: k-fold, folds: 5}".

    Returns:
        The section.

    Raises:
        RecipeError: the text has another form, or a key or a value is invalid.
    """
    if isinstance(split, SplitSection):
        return split
    if isinstance(split, str):
        try:
            split = parse_yaml(split) if split.lstrip().startswith("{") else _from_text(split)
        except ValueError as error:
            remedy = f"expected {FORMS}, or a mapping {{kind: ..., column: ...}}"
            raise RecipeError(f"{split!r}: {error}", value=split, remedy=remedy) from None
    if not isinstance(split, Mapping):
        raise RecipeError(f"is {split!r}", value=split, remedy=f"expected {FORMS}")
    return validated(SplitSection, dict(split), "")


def _from_text(text: str) -> dict[str, Any]:
    kind, *rest = (part.strip() for part in text.split(":", 2))
    content: dict[str, Any] = {"kind": kind}
    if kind in ("temporal", "grouped"):
        content["column"], rest = (rest[0] or None, rest[1:]) if rest else (None, [])
    elif kind == "k-fold":
        if not rest:
            raise ValueError("the number of folds is missing")
        content["folds"], rest = _value(int, rest[0]), rest[1:]
    elif kind not in ("random", "given"):
        raise ValueError(f"no kind {kind!r}{nearest(kind, ['random', 'temporal', 'grouped', 'k-fold', 'given'])}")
    if len(rest) > 1:
        raise ValueError(f"{rest[1]!r} is too much")
    if not rest:
        return content
    values = rest[0].split(",")
    if kind == "k-fold":
        content["val"] = _value(float, rest[0])
    elif kind == "temporal" and len(values) == 2:
        content["cuts"] = [parse_yaml(value) for value in values]
    elif len(values) == 3 and kind != "given":
        content["shares"] = [_value(float, value) for value in values]
    else:
        raise ValueError(f"{rest[0]!r} is not {'two cuts or ' if kind == 'temporal' else ''}three shares")
    return content


def _value(kind: type[int] | type[float], text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {'whole ' if kind is int else ''}number") from None


@dataclass
class Drawn:
    """Splits of a dataset.

    Attributes:
        codes: part of each row, uint8 [S, rows]: 0 none, 1 train, 2 val, 3 test.
        seen: the part with which each row becomes visible in inductive training, uint8 [S, rows], never 0.
        stated: one line that describes the splits.
    """

    codes: np.ndarray
    seen: np.ndarray
    stated: str


@dataclass
class SplitRows:
    """The rows that are split.

    Attributes:
        level: what a row is: "node" or "graph".
        labelled: which rows have a target, bool [rows]. Other rows are in no part.
        column: the values of the column of the section, [rows].
        classes: the classes by which folds are stratified, int [rows]; None for other targets.
    """

    level: str
    labelled: np.ndarray
    column: np.ndarray | None = None
    classes: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """Return the column. Raises DatasetError if the data have none, or of another length."""
        assert self.column is not None  # a section with a column reads it
        if len(self.column) != len(self.labelled):
            raise DatasetError(
                f"the column of the split has {len(self.column)} values for {len(self.labelled)} {self.level}s",
                remedy="it needs one for each",
            )
        return self.column

    def place(self, column: str | None, row: int) -> str:
        """Describe the place of a value for error messages."""
        return f"column {column}: {self.level} {row} (counted from 0)"

    def check_known(self, missing: np.ndarray, column: str | None, what: str) -> None:
        """Raise DatasetError if a row with a target has no value."""
        if (wrong := np.flatnonzero(missing & self.labelled)).size:
            others = f", like {wrong.size - 1} others" if wrong.size > 1 else ""
            raise DatasetError(
                f"has a target and no {what}{others}",
                place=self.place(column, int(wrong[0])),
                remedy="add it, or remove the target",
            )


def drawn(section: SplitSection, rows: SplitRows, shares: Shares, num_splits: int, seed: int) -> Drawn:
    """Draw temporal or grouped splits, or those of a k-fold cross-validation.

    Args:
        section: how.
        rows: the rows.
        shares: shares of train, val and test if the section has none.
        num_splits: number of grouped splits.
        seed: seed of the first split.

    Returns:
        The splits.

    Raises:
        DatasetError: a part would be empty, a row with a target has no time or group, or times have no order.
    """
    shares = section.shares or shares
    if section.kind == "temporal":
        return _temporal(section, rows, shares)
    if section.kind == "grouped":
        return _grouped(section, rows, shares, num_splits, seed)
    return _folds(section, rows, seed)


def _temporal(section: SplitSection, rows: SplitRows, shares: Shares) -> Drawn:
    texts = rows.values()
    times, missing, are_dates = _times(texts, rows, section.column)
    rows.check_known(missing, section.column, "time")
    note = ""
    known, first, inverse = np.unique(times[rows.labelled], return_index=True, return_inverse=True)
    labelled_texts = texts[rows.labelled]
    if section.cuts:
        cuts = [_cut(cut, are_dates, rows, section.column) for cut in section.cuts]
        if cuts[0] >= cuts[1]:
            raise DatasetError(
                f"the cuts {section.cuts[0]} and {section.cuts[1]} are not in order",
                value=section.cuts,
                remedy="the first is the time at which val begins, the second that at which test begins",
            )
        texts_of_cuts = [str(cut) for cut in section.cuts]
    else:
        if len(known) < 3:
            raise DatasetError(
                f"has {len(known)} different times in rows with a target",
                place=f"column {section.column}",
                remedy="three parts need three: rows of the same time are in the same part",
            )
        before = np.concatenate([[0], np.bincount(inverse).cumsum()])[:-1]  # rows before each time
        val = 1 + int(np.abs(before[1:-1] - len(inverse) * shares[0]).argmin())
        test = val + 1 + int(np.abs(before[val + 1 :] - len(inverse) * (shares[0] + shares[1])).argmin())
        cuts = [known[val], known[test]]
        texts_of_cuts = [shown(labelled_texts[first[index]]) for index in (val, test)]
        missed = [abs(int(before[i]) - len(inverse) * s) for i, s in ((val, shares[0]), (test, 1 - shares[2]))]
        if max(missed) >= 1:
            reached = "/".join(f"{n / len(inverse):.3g}" for n in np.diff([0, before[val], before[test], len(inverse)]))
            note = f" (shares {reached}: rows of the same time stay together)"
    part = 1 + (times >= cuts[0]).astype(np.uint8) + (times >= cuts[1]).astype(np.uint8)
    codes = np.where(rows.labelled, part, 0)
    for code, name in enumerate(PARTS, 1):
        if not (codes == code).any():
            span = f"{shown(labelled_texts[first[0]])} to {shown(labelled_texts[first[-1]])}"
            raise DatasetError(
                f"the {name} part is empty: times go from {span}, and the cuts are {' and '.join(texts_of_cuts)}",
                place=f"column {section.column}",
                remedy="move them",
            )
    stated = (
        f"temporal by {section.column}: train before {texts_of_cuts[0]}, val from {texts_of_cuts[0]}, test from "
        f"{texts_of_cuts[1]}{note}"
    )
    seen = np.where(missing, 3, part)  # a row without a time is not seen before the test
    return Drawn(codes[None].astype(np.uint8), seen[None].astype(np.uint8), stated)


def _times(cells: np.ndarray, rows: SplitRows, column: str | None) -> tuple[np.ndarray, np.ndarray, bool]:
    """Convert cells to numbers. Returns them, which are missing (then the number is 0), and whether they are dates."""
    if cells.dtype.kind == "M":
        missing = np.isnat(cells)
        return np.where(missing, 0, cells.astype("datetime64[us]").astype(np.int64)), missing, True
    if cells.dtype.kind in "iubf":
        missing = np.isnan(cells)
        return np.where(missing, 0, cells), missing, False
    missing = _is_missing(cells)
    times = np.zeros(len(cells), np.int64)
    for row in np.flatnonzero(~missing).tolist():
        try:
            times[row] = _microseconds(str(cells[row]).strip())
        except (ValueError, OverflowError):
            raise DatasetError(
                f"is {shown(cells[row])}",
                place=rows.place(column, row),
                value=cells[row],
                remedy="times must be all numbers, or all ISO dates such as 2021-05-31 or 2021-05-31T14:00, so that "
                "they have an order",
            ) from None
    return times, missing, True


def _is_missing(cells: np.ndarray) -> np.ndarray:
    """Return which words are missing, bool [rows]."""
    return np.array([cell is None or cell != cell or not str(cell).strip() for cell in cells.tolist()], bool)


def _number(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(text)
    return value


def _microseconds(text: str) -> int:
    """Return the microseconds of an ISO date since 1970, UTC if it has no time zone. Raises ValueError."""
    if re.fullmatch(r"\d{4}(-\d{2})?", text):  # 2021-05, which fromisoformat does not read
        text = f"{text}-01-01"[:10]
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86400 + delta.seconds) * 10**6 + delta.microseconds


def _cut(cut: int | float | str, are_dates: bool, rows: SplitRows, column: str | None) -> float:
    try:
        return _microseconds(str(cut)) if are_dates else cut if isinstance(cut, int) else _number(str(cut))
    except (ValueError, OverflowError):
        problem = f"the cut {cut} is not {'a date' if are_dates else 'a number'}, as the times are"
        place = f"column {column}"
        raise DatasetError(problem, place=place, value=cut, remedy="write it as they are") from None


def _grouped(section: SplitSection, rows: SplitRows, shares: Shares, num_splits: int, seed: int) -> Drawn:
    cells = rows.values()
    missing = np.isnan(cells) if cells.dtype.kind in "iubf" else _is_missing(cells)
    cells = cells if cells.dtype.kind in "iubf" else np.array([str(cell).strip() for cell in cells.tolist()])
    rows.check_known(missing, section.column, "group")
    _, group = np.unique(cells, return_inverse=True)
    sizes = np.bincount(group[rows.labelled], minlength=group.max(initial=0) + 1)  # rows with a target
    groups = np.flatnonzero(sizes)
    if len(groups) < 3:
        remedy = "train, val and test need one each: use another column"
        raise DatasetError(f"has {len(groups)} groups with a target", place=f"column {section.column}", remedy=remedy)
    codes = np.zeros((num_splits, len(cells)), np.uint8)
    seen = np.ones_like(codes)
    counts: list[int] = []
    for number in range(num_splits):
        part = np.ones(len(sizes), np.uint8)  # rows without a target of a group without any: seen in training
        order = np.random.default_rng(seed + number).permutation(groups)
        part[order] = _filled(sizes[order], shares)
        codes[number] = np.where(rows.labelled, part[group], 0)
        seen[number] = np.where(missing, 3, part[group])
        counts = counts or np.bincount(part[groups], minlength=4)[1:].tolist()
    listed = ", ".join(f"{count} {name}" for count, name in zip(counts, PARTS, strict=True))
    stated = f"grouped by {section.column}: {len(groups)} groups, each in one part: {listed} (the first split)"
    return Drawn(codes, seen, stated)


def _filled(sizes: np.ndarray, shares: Shares) -> np.ndarray:
    """Return the part of each group, in order: that most below its share; the last groups fill empty parts."""
    lacks = np.array(shares) * sizes.sum()
    parts = np.zeros(len(sizes), np.uint8)
    empty = {0, 1, 2}
    for index, size in enumerate(sizes):
        choices = sorted(empty) if len(sizes) - index <= len(empty) else [0, 1, 2]
        part = max(choices, key=lambda choice: lacks[choice])
        parts[index], lacks[part] = part + 1, lacks[part] - size
        empty.discard(part)
    return parts


def _folds(section: SplitSection, rows: SplitRows, seed: int) -> Drawn:
    folds, share = section.folds or 0, section.val or 0.1
    members = np.flatnonzero(rows.labelled)
    if folds > len(members):
        problem = f"{folds} folds of {len(members)} {rows.level}s with a target"
        raise DatasetError(problem, value=folds, remedy=f"use at most {len(members)}")
    of_row = np.empty(len(members), np.int64)
    of_row[_mixed(members, rows.classes, seed)] = np.arange(len(members)) % folds
    codes = np.zeros((folds, len(rows.labelled)), np.uint8)
    for number, row in enumerate(codes):
        row[members] = 1
        row[members[of_row == number]] = 3
        rest = members[of_row != number]
        # evenly spaced in an order sorted by class: as many of each class as its share
        steps = (np.arange(1, len(rest) + 1) * share + 1e-9).astype(np.int64)
        picked = np.flatnonzero(np.diff(steps, prepend=0))
        if not len(picked) or len(picked) == len(rest):
            raise DatasetError(
                f"a validation share of {share:g} of the {len(rest)} {rows.level}s that are not in the test fold "
                f"leaves {'train' if len(picked) else 'val'} empty",
                value=share,
                remedy=f"use fewer folds, or another share: k-fold:{folds}:0.5",
            )
        row[rest[_mixed(rest, rows.classes, seed + 1 + number)[picked]]] = 2
    stated = (
        f"{folds}-fold{' stratified by class' if rows.classes is not None else ''}: split i tests on fold i and "
        f"validates on {share:g} of the other rows; seed i uses split i modulo {folds}"
    )
    return Drawn(codes, np.where(codes, codes, 1).astype(np.uint8), stated)


def _mixed(members: np.ndarray, classes: np.ndarray | None, seed: int) -> np.ndarray:
    """Return positions in random order, and then by class."""
    order = np.random.default_rng(seed).permutation(len(members))
    return order if classes is None else order[np.argsort(classes[members][order], kind="stable")]


def no_column(column: str, known: Sequence[str], file: str | Path = "", place: str = "") -> DatasetError:
    """Make the error for a column that is declared and does not exist."""
    problem, remedy = f"no column {column!r}{nearest(column, known)}", f"it has: {', '.join(known) or 'none'}"
    return DatasetError(problem, file=file, place=place, value=column, remedy=remedy)
