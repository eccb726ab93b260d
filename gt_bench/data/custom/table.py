"""Tables of text columns, and CSV files, whose separator, encoding and decimal mark are detected."""

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gt_bench.data.readers import dataset_errors
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import printable

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars", " ": "spaces"}
RESERVED = ("graph", "source", "target", "y", "split")  # column names, upper or lower case
MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "?")  # next to numbers, in any case
# next to words, as programs write them: Na is sodium, none may be a class
MISSING_WORDS = ("", "NA", "N/A", "n/a", "nan", "NaN", "<NA>", "NaT", "null", "NULL", "None", "-", "?")
_BYTE_ORDER_MARKS = (  # UTF-32 before UTF-16, whose mark is a prefix
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_LARGEST = float(np.finfo(np.float32).max)  # quantities are stored as float32


@dataclass
class Table:
    """Text columns of a CSV file, or of another table.

    Attributes:
        path: the file.
        columns: stripped cells by name.
        lines: the line of the file at which each row begins.
        decimal_comma: whether "0,5" is a half; None if this cannot be decided ("1,234").
        unit: what `lines` counts, for error messages.
    """

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    decimal_comma: bool | None = False
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def at(self, row: int, column: str | None = None) -> str:
        """Describe the location of a row, or of a cell if `column` is given, for error messages."""
        return f"{self.path}: {self.unit} {self.lines[row]}" + (f": column {printable(column)}" if column else "")

    def numbers(self, name: str) -> np.ndarray:
        """Remove a column and convert it to numbers.

        Args:
            name: name of the column.

        Returns:
            int64 if all cells are whole numbers, else float64.

        Raises:
            DatasetError: a cell is not a number.
        """
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
                    f"{self.at(row, name)}: {shown(cells[row])} is too large for a whole number; remove an identifier, "
                    "and write quantities with a point or an exponent: 1e20"
                ) from None
            except ValueError:
                pass
        return np.array([self._number(row, name, cell) for row, cell in enumerate(cells)], np.float64)

    def whole_numbers(self, name: str, what: str, limit: int) -> np.ndarray:
        """Remove a column and convert it to whole numbers; 3.0 is one.

        Args:
            name: name of the column.
            what: its content for error messages.
            limit: exclusive upper bound.

        Returns:
            int64.

        Raises:
            DatasetError: a cell is not a whole number in 0..limit - 1.
        """
        cells = self.columns[name]
        values = self.numbers(name)
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((values >= 0) & (values < limit) & (values == np.floor(values))))
        if wrong.size:
            row = int(wrong[0])
            raise DatasetError(
                f"{self.at(row, name)} is {shown(cells[row])}; {what} must be whole numbers from 0 to {limit - 1}"
            )
        return values.astype(np.int64)

    def _number(self, row: int, name: str, cell: str) -> float:
        where = self.at(row, name)
        if "," in cell and _COMMA.fullmatch(cell):
            if self.decimal_comma is None:
                raise DatasetError(
                    f"{where}: the comma of {shown(cell)} may be a decimal mark or a thousands separator; write "
                    "decimals with a point, and no thousands separators"
                )
            cell = cell.replace(",", ".")
        elif self.decimal_comma and _POINT.fullmatch(cell):
            raise DatasetError(
                f"{where}: {shown(cell)} has a decimal point, but other numbers of the file have a decimal comma; use "
                "one of them"
            )
        try:
            if "_" in cell or not cell.isascii():  # which float() accepts
                raise ValueError
            value = float(cell)
        except ValueError:
            if cell.lower() in MISSING:
                what = "is empty" if not cell else f"is missing ({cell})"
                remedy = "-1 for an unknown label, nan for an unknown number" if name.startswith("y") else "a number"
                raise DatasetError(f"{where} {what}; write {remedy}") from None
            raise DatasetError(
                f"{where}: {cell[:100]!r} is not a number; expected a number: number categories 0, 1, ..., or "
                "write only words"
            ) from None
        if abs(value) > _LARGEST and "inf" not in cell.lower():
            raise DatasetError(
                f"{where}: {shown(cell)} is too large; numbers are stored as float32, up to {_LARGEST:.2g}: use "
                "another unit"
            )
        return value


def read_columns(path: Path, remarks: list[str]) -> Table:
    """Read a CSV file.

    Args:
        path: the file.
        remarks: remarks for the user are added to this list.

    Returns:
        The table.

    Raises:
        DatasetError: the file is invalid. The message names file, line and column.
    """
    text = _decode(path)
    if first_line := re.match(r"sep=([,;|\t])\r?\n", text):  # written by spreadsheets
        separator, text = first_line[1], "\n" + text[first_line.end() :]
    else:
        separator = _detect_separator(path, text)
    names, rows, lines = _rows(path, text, separator)
    if separator != ",":
        remarks.append(f"{path.name}: columns are separated by {SEPARATORS[separator]}")
    _check_names(path, names, rows)
    _check_widths(path, names, rows, lines, separator)
    columns = {name: [row[index].strip() for row in rows] for index, name in enumerate(names)}
    decimal_comma = detect_decimal_comma(columns.values())
    if decimal_comma:
        remarks.append(f"{path.name}: numbers have decimal commas: 0,5 is a half")
    return Table(path, columns, lines, decimal_comma)


def _decode(path: Path) -> str:
    with dataset_errors(path, "cannot be read; expected a text file"):
        content = path.read_bytes()
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DatasetError(
            f"{path}: line {line}: cannot be read as {encoding.upper().removesuffix('-SIG')} ({error.reason}); "
            "save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DatasetError(
            f"{path}: line {line}: contains a zero byte, which is not UTF-8 text (UTF-16 needs a byte order mark); "
            "save the file as UTF-8"
        )
    return text


def _parse(text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Return the rows that are not blank, and the line at which each begins. Raises csv.Error."""
    if separator == " ":
        text = "\n".join(" ".join(line.split()) for line in io.StringIO(text, newline=None))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    rows, lines, line = [], [], 1
    for row in reader:
        if row:
            rows.append(row)
            lines.append(line)
        line = reader.line_num + 1
    return rows, lines


def _detect_separator(path: Path, text: str) -> str:
    """Detect the separator of columns: by the first line, and if it has several candidates, by all lines."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = [separator for separator in SEPARATORS if separator != " " and separator in first]
    if len(found) == 1:
        return found[0]
    consistent: dict[str, bool] = {}  # whether a column then has a reserved name
    for separator in found or [" "]:
        try:
            rows = _parse(text, separator)[0]
        except csv.Error:
            continue
        if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
            names = [normalized(name.strip()) for name in rows[0]]
            consistent[separator] = any(name in RESERVED or is_target(name) for name in names)
    consistent = {separator: True for separator, reserved in consistent.items() if reserved} or consistent
    if len(consistent) > 1:
        candidates = " or by ".join(SEPARATORS[separator] for separator in consistent)
        raise DatasetError(f"{path}: line 1: columns may be separated by {candidates}; use one of them")
    return next(iter(consistent), ",")


def _rows(path: Path, text: str, separator: str) -> tuple[list[str], list[list[str]], list[int]]:
    try:
        rows, lines = _parse(text, separator)
    except csv.Error as error:
        line = _line_of_error(text, separator)
        raise DatasetError(
            f"{path}: line {line}: cannot be read ({error}); close each quoted cell, and double the quotes in it"
        ) from error
    if not rows:
        raise DatasetError(f"{path}: is empty; the first line must name the columns")
    names = [normalized(name.strip()) for name in rows[0]]
    return names, rows[1:], lines[1:]


def _line_of_error(text: str, separator: str) -> int:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    last = 0
    with contextlib.suppress(csv.Error):
        for _ in reader:
            last = reader.line_num
    return last + 1  # where the row begins


def is_target(name: str) -> bool:
    """Test whether a column contains targets."""
    return name == "y" or name.startswith("y_")


def normalized(name: str) -> str:
    """Return reserved names in lower case, other names unchanged."""
    lower = name.lower()
    return lower if lower in RESERVED or is_target(lower) else name


def _check_names(path: Path, names: list[str], rows: list[list[str]]) -> None:
    for index, name in enumerate(names):
        if name and not re.fullmatch(r"Unnamed: \d+(\.\d+)?", name):
            continue
        cells = {row[index].strip() for row in rows if index < len(row)}
        if name == "" and cells <= {""} and rows:
            raise DatasetError(
                f"{path}: column {index + 1} has no name and no values: remove the separator at the end of each line"
            )
        raise DatasetError(
            f"{path}: line 1: column {index + 1} has no name; name it, or if it is the index of a DataFrame, write "
            "to_csv(..., index=False) (R: row.names=FALSE)"
        )
    if len(set(names)) < len(names):
        raise DatasetError(f"{path}: duplicate column {max(names, key=names.count)!r}; rename one")
    if all(re.fullmatch(r"[+-]?\d+([.,]\d+)?|[+-]?\d*\.\d+", name) for name in names):
        raise DatasetError(f"{path}: line 1 has numbers, expected names of columns; add a line of names")


def _check_widths(path: Path, names: list[str], rows: list[list[str]], lines: list[int], separator: str) -> None:
    for row, line in zip(rows, lines, strict=True):
        if len(row) == len(names):
            continue
        hint = f"columns are separated by {SEPARATORS[separator]}"
        if all(len(other) == len(names) + 1 for other in rows):
            hint = "if the first one is an index without a name, write row.names=FALSE (R) or index=False (pandas); "
            hint += "a decimal comma needs quotes"
        elif separator == "," and len(row) > len(names):
            hint += ": a decimal comma needs quotes or another separator"
        raise DatasetError(f"{path}: line {line} has {len(row)} columns, line 1 names {len(names)}; {hint}")


def detect_decimal_comma(columns: Iterable[Sequence[str]]) -> bool | None:
    """Test whether numbers have decimal commas; None if they may be thousands separators."""
    commas = [cell for cells in columns for cell in cells if "," in cell and _COMMA.fullmatch(cell)]
    if not commas:
        return False
    return None if all(_THOUSANDS.fullmatch(cell) for cell in commas) else True


def shown(cell: str) -> str:
    """Shorten a cell for a message: at most 40 printable characters, on one line."""
    text = printable(cell)
    return text if len(text) <= 40 else f"{text[:40]}..."
