"""Errors that a user can fix, compared by their fields."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind: type[Exception], **fields: object) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error of this kind whose fields (file, place, value, remedy, ...) have these values."""
    with pytest.raises(kind) as info:
        yield info
    assert {name: getattr(info.value, name) for name in fields} == fields
