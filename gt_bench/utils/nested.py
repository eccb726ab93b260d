"""Nested settings as dotted keys: {"model": {"dropout": 0.5}} has the key model.dropout."""

from collections.abc import Iterator, Mapping


def flat(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys and values of nested mappings, in order. An empty mapping is a value.

    Args:
        content: the settings.
        prefix: put before each key.
    """
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
