"""Addresses and paths as they may be printed, written and shared: without credentials, and without whose machine it was."""

import re
from pathlib import Path

# a query's value by its name, as in ?X-Amz-Signature=... or &token=...
_SECRET = re.compile(r"([?&][^=&\s]*(?:token|key|secret|sig|pass|pwd|credential|auth)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)
_USER = re.compile(r"([A-Za-z][\w+.-]*://)[^/\s'\"]*@")
_ABSOLUTE = re.compile(r"(?<![\w:/.~…])/(?:[^\s/:;,'\"]+/)+(?=[^\s/:;,'\"]+/[^\s/:;,'\"]+)")


def printable(text: str) -> str:
    """Foreign text on one line, its control and formatting characters cut."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def without_credentials(text: str) -> str:
    """`text` with user, password and secret parts of queries cut from every URL in it."""
    return _SECRET.sub(r"\1***", _USER.sub(r"\1", text))


def shareable(text: str) -> str:
    """`without_credentials`; paths below the working directory are relative to it, and of other absolute ones the last two parts are left."""
    return _ABSOLUTE.sub("…/", without_credentials(text).replace(f"{Path.cwd()}/", ""))
