"""data.lock.json: sha256 of raw files whose host publishes none, pinned on first use.

A digest is pinned after the dataset's statistics equal the published ones. The file is at the root of the repository
and belongs in git: with an entry, a file of other content is refused on every machine.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from gt_bench.data.spec import RemoteFile, known_digests
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_json

PATH = Path("data.lock.json")


class Pin(BaseModel):
    """Digest of a raw file when it was first used.

    Attributes:
        sha256: in hexadecimal.
        bytes: size of the file.
        date: the day (UTC, ISO 8601).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(strict=True, ge=0)
    date: Annotated[str, AfterValidator(lambda day: datetime.strptime(day, "%Y-%m-%d") and day)]


_PINS = TypeAdapter(dict[str, Pin])


def read_pins() -> dict[str, Pin]:
    """Read data.lock.json.

    Returns:
        Path of a raw file -> its pin; empty if there is no lock file.

    Raises:
        DatasetError: the lock file is damaged, or contradicts gt_bench/data/files.json.
    """
    try:
        pins = _PINS.validate_json(PATH.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        remedy = f"restore it (git checkout {PATH}), or delete it to pin the files again on their next use"
        raise DatasetError(f"damaged ({' '.join(str(error).split())[:200]})", file=PATH, remedy=remedy) from None
    published = known_digests()
    for path, pin in pins.items():
        if published.get(path, pin.sha256) != pin.sha256:
            problem = f"has sha256 {pin.sha256}, but gt_bench/data/files.json pins {published[path]}"
            remedy = f"delete the entry from {PATH}"
            raise DatasetError(problem, file=PATH, place=path, value=pin.sha256, remedy=remedy)
    return pins


def with_pin(file: RemoteFile, pins: Mapping[str, Pin]) -> RemoteFile:
    """Complete a raw file with its pinned digest and size.

    Args:
        file: the raw file.
        pins: path -> pin, as from `read_pins`.

    Returns:
        The file with the pin; unchanged if it has a published sha256 or no pin.
    """
    pin = pins.get(file.path)
    if file.sha256 is not None or pin is None:
        return file
    return replace(file, sha256=pin.sha256, bytes=pin.bytes, pinned=pin.date)


def new_pin(sha256: str, size: int) -> Pin:
    """Make a pin with today's date for a file of `size` bytes."""
    return Pin(sha256=sha256, bytes=size, date=datetime.now(UTC).date().isoformat())


def add_pins(pins: Mapping[str, Pin]) -> None:
    """Add pins (path -> pin) to the lock file. The caller must hold the lock of the file."""
    before = read_pins()
    after = {**before, **pins}
    if after != before:
        write_json(PATH, {path: after[path].model_dump() for path in sorted(after)})
