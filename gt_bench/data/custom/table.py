"""A user's CSV file as text columns with the line of each row. Separator, encoding and decimal mark are recognised, and whatever is unusual is remarked."""

import codecs
import contextlib
import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import printable

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "spaces"}
RESERVED = ("graph", "source", "target", "y", "split")  # in any case of letters
MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")
_MARKS = (  # the longer first: UTF-32 begins as UTF-16 does
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_LARGEST = float(np.finfo(np.float32).max)  # quantities are stored as float32


@dataclass
class Table:
    """Columns by name, each a list of stripped cells.

    Attributes:
        lines: of the file, at which each row begins.
        decimal_comma: whether "0,5" is a half; None where that cannot be decided ("1,234").
    """

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    decimal_comma: bool | None = False

    def __len__(self) -> int:
        return len(self.lines)

    def at(self, row: int, column: str | None = None) -> str:
        """Where a row or a cell is, for messages."""
        return f"{self.path}: line {self.lines[row]}" + (f": column {printable(column)}" if column else "")

    def numbers(self, name: str) -> np.ndarray:
        """A column taken out: int64 where all cells are whole numbers, else float64. Raises DatasetError for a cell that is no number."""
        cells = self.columns.pop(name)
        marks = set("".join(cells))
        if "." in marks and not self.decimal_comma and not marks & set("_,") and max(marks) < "\x80":
            with contextlib.suppress(ValueError):
                values = np.array([float(cell) for cell in cells])
                if not (np.abs(values) > _LARGEST).any():
                    return values
        elif not marks & set("_.,") and max(marks, default="") < "\x80":
            try:
                return np.array([int(cell) for cell in cells], np.int64)
            except OverflowError:
                row = next(row for row, cell in enumerate(cells) if abs(int(cell)) >= 2**63)
                raise DatasetError(
                    f"{self.at(row, name)}: {shown(cells[row])} is too large for a whole number; an identifier does not belong "
                    "here, and a quantity needs a point or an exponent: 1e20"
                ) from None
            except ValueError:
                pass
        return np.array([self._number(row, name, cell) for row, cell in enumerate(cells)], np.float64)

    def whole(self, name: str, what: str, most: int) -> np.ndarray:
        """A column taken out, of whole numbers from 0 to below `most`; 3.0 is one. Raises DatasetError."""
        cells = self.columns[name]
        values = self.numbers(name)
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((values >= 0) & (values < most) & (values == np.floor(values))))
        if wrong.size:
            row = int(wrong[0])
            raise DatasetError(
                f"{self.at(row, name)} is {shown(cells[row])}: {what} must be whole numbers from 0 to {most - 1}"
            )
        return values.astype(np.int64)

    def _number(self, row: int, name: str, cell: str) -> float:
        where = self.at(row, name)
        if "," in cell and _COMMA.fullmatch(cell):
            if self.decimal_comma is None:
                raise DatasetError(
                    f"{where}: {shown(cell)} can be a decimal comma or a thousands separator; write a point for decimals and nothing for thousands"
                )
            cell = cell.replace(",", ".")
        elif self.decimal_comma and _POINT.fullmatch(cell):
            raise DatasetError(
                f"{where}: {shown(cell)} has a decimal point, and other numbers of the file have a decimal comma; use one of them"
            )
        try:
            value = float(cell) if "_" not in cell and cell.isascii() else float("no number")
        except ValueError:
            if cell.lower() in MISSING:
                what = "is empty" if not cell else f"is missing ({cell})"
                remedy = (
                    "-1 for a label that is not known, nan for a number that is not"
                    if name.startswith("y")
                    else "a number"
                )
                raise DatasetError(f"{where} {what}; write {remedy}") from None
            raise DatasetError(
                f"{where}: expected a number, found {cell[:100]!r}; number categories 0, 1, ..."
            ) from None
        if abs(value) > _LARGEST and "inf" not in cell.lower():
            raise DatasetError(
                f"{where}: {shown(cell)} is too large; numbers are stored as float32, up to {_LARGEST:.2g}: give another unit"
            )
        return value


def read_columns(path: Path, remarks: list[str]) -> Table:
    """The table in a file. Raises DatasetError, which names file, line and column."""
    text = _text(path)
    if hint := re.match(r"sep=([,;|\t])\r?\n", text):  # as spreadsheets write it
        separator, text = hint[1], "\n" + text[hint.end() :]
    else:
        separator = _separator(path, text)
    names, rows, lines = _rows(path, text, separator)
    if separator != ",":
        remarks.append(f"{path.name}: columns are separated by {SEPARATORS[separator]}")
    _check_names(path, names, rows)
    _check_widths(path, names, rows, lines, separator)
    columns = {name: [row[index].strip() for row in rows] for index, name in enumerate(names)}
    decimal_comma = _decimal_comma(rows)
    if decimal_comma:
        remarks.append(f"{path.name}: numbers have decimal commas: 0,5 is a half")
    return Table(path, columns, lines, decimal_comma)


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DatasetError(
            f"{path}: line {line}: cannot be read as {encoding.upper().removesuffix('-SIG')} ({error.reason}); save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DatasetError(
            f"{path}: line {line}: holds a zero byte: this is no text in UTF-8 (UTF-16 needs its byte order mark); save the file as UTF-8"
        )
    return text


def _parsed(text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Rows that are not blank, and the line at which each begins. Raises csv.Error."""
    if separator == " ":
        text = "\n".join(" ".join(line.split()) for line in io.StringIO(text, newline=None))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    rows, lines, begins = [], [], 1
    for row in reader:
        if row:
            rows.append(row)
            lines.append(begins)
        begins = reader.line_num + 1
    return rows, lines


def _separator(path: Path, text: str) -> str:
    """What separates the columns, by the first line, and where that has several candidates by which of them fits all lines."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = [separator for separator in SEPARATORS if separator != " " and separator in first]
    if len(found) == 1:
        return found[0]
    fitting: dict[str, bool] = {}  # whether it gives names of columns that are known here
    for separator in found or [" "]:
        try:
            rows = _parsed(text, separator)[0]
        except csv.Error:
            continue
        if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
            fitting[separator] = any(
                _folded(name.strip()) in RESERVED or name.strip().startswith("y_") for name in rows[0]
            )
    fitting = {separator: True for separator, known in fitting.items() if known} or fitting
    if len(fitting) > 1:
        raise DatasetError(
            f"{path}: line 1: columns can be separated by {' or by '.join(SEPARATORS[separator] for separator in fitting)}; use one of them"
        )
    return next(iter(fitting), ",")


def _rows(path: Path, text: str, separator: str) -> tuple[list[str], list[list[str]], list[int]]:
    try:
        rows, lines = _parsed(text, separator)
    except csv.Error as error:
        line = _line_of_error(text, separator)
        raise DatasetError(
            f"{path}: line {line}: cannot be read ({error}); close each quoted cell, and double the quotes in it"
        ) from error
    if not rows:
        raise DatasetError(f"{path}: is empty; its first line names the columns")
    names = [_folded(name.strip()) for name in rows[0]]
    return names, rows[1:], lines[1:]


def _line_of_error(text: str, separator: str) -> int:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    last = 0
    try:
        for _ in reader:
            last = reader.line_num
    except csv.Error:
        pass
    return last + 1  # where the row begins


def _folded(name: str) -> str:
    lower = name.lower()
    return lower if lower in RESERVED or lower.startswith("y_") else name


def _check_names(path: Path, names: list[str], rows: list[list[str]]) -> None:
    for index, name in enumerate(names):
        if name and not re.fullmatch(r"Unnamed: \d+(\.\d+)?", name):
            continue
        cells = {row[index].strip() for row in rows if index < len(row)}
        if name == "" and cells <= {""} and rows:
            raise DatasetError(
                f"{path}: column {index + 1} has no name and no values: lines end with a separator; take it out"
            )
        raise DatasetError(
            f"{path}: line 1: column {index + 1} has no name; where it is the index of a DataFrame, write to_csv(..., index=False) "
            "(R: row.names=FALSE), else name it"
        )
    if len(set(names)) < len(names):
        raise DatasetError(f"{path}: two columns are named {max(names, key=names.count)!r}")
    if all(re.fullmatch(r"[+-]?\d+([.,]\d+)?|[+-]?\d*\.\d+", name) for name in names):
        raise DatasetError(
            f"{path}: line 1 holds numbers where it should name the columns; write a line of names above it"
        )


def _check_widths(path: Path, names: list[str], rows: list[list[str]], lines: list[int], separator: str) -> None:
    for row, line in zip(rows, lines, strict=True):
        if len(row) == len(names):
            continue
        hint = f"; columns are separated by {SEPARATORS[separator]} here"
        if all(len(other) == len(names) + 1 for other in rows):
            hint = "; where the first is an index without a name, write row.names=FALSE (R) or index=False (pandas); a decimal comma needs quotes"
        elif separator == "," and len(row) > len(names):
            hint += ": a decimal comma needs quotes or another separator"
        raise DatasetError(f"{path}: line {line} has {len(row)} columns where {len(names)} are named{hint}")


def _decimal_comma(rows: list[list[str]]) -> bool | None:
    commas = [cell.strip() for row in rows for cell in row if "," in cell and _COMMA.fullmatch(cell.strip())]
    if not commas:
        return False
    return None if all(_THOUSANDS.fullmatch(cell) for cell in commas) else True


def shown(cell: str) -> str:
    """A cell in a message: on one line, and not longer than helps to find it."""
    text = printable(cell)
    return text if len(text) <= 40 else f"{text[:40]}..."
