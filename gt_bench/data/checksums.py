"""data.lock.json: the digests of raw files whose host publishes no sha256, pinned when each was first read as the published dataset.

It lies at the repository's root and belongs in git: from its first entry on, another content of that file is refused, on every machine.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from json import loads
from pathlib import Path

from gt_bench.data.spec import RemoteFile, known_digests
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_json

PATH = Path("data.lock.json")


@dataclass(frozen=True)
class Pin:
    """What a file was when it was first read: its sha256, its size in bytes, and the day (UTC, ISO 8601)."""

    sha256: str
    bytes: int
    date: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256) or type(self.bytes) is not int or self.bytes < 0:
            raise ValueError(f"no sha256 and size: {self.sha256!r}, {self.bytes!r}")
        datetime.strptime(self.date, "%Y-%m-%d")


def read_pins() -> dict[str, Pin]:
    """Path of a raw file -> its pin; empty where there is no lock file.

    Raises DatasetError for a damaged lock file, and for an entry that contradicts gt_bench/data/files.json.
    """
    try:
        pins = {path: Pin(**entry) for path, entry in loads(PATH.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DatasetError(
            f"{PATH}: damaged ({str(error)[:200]}); take it from git (git checkout {PATH}), or delete it: then the next use pins anew"
        ) from None
    published = known_digests()
    for path, pin in pins.items():
        if published.get(path, pin.sha256) != pin.sha256:
            raise DatasetError(
                f"{PATH}: {path} has sha256 {pin.sha256}, but gt_bench/data/files.json pins {published[path]}; delete the entry from {PATH}"
            )
    return pins


def with_pin(file: RemoteFile, pins: Mapping[str, Pin]) -> RemoteFile:
    """`file` with digest and size of its pin, where it has no sha256 of its own."""
    pin = pins.get(file.path)
    if file.sha256 is not None or pin is None:
        return file
    return replace(file, sha256=pin.sha256, bytes=pin.bytes, pinned=pin.date)


def new_pin(sha256: str, size: int) -> Pin:
    """A pin of today."""
    return Pin(sha256, size, datetime.now(UTC).date().isoformat())


def add_pins(pins: Mapping[str, Pin]) -> None:
    """Writes `pins` into the lock file beside what is there; the caller holds a lock against other writers."""
    before = read_pins()
    after = {**before, **pins}
    if after != before:
        write_json(PATH, {path: asdict(after[path]) for path in sorted(after)})
