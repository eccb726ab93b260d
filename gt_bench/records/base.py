"""What all models of files share: strict types, no unknown keys, and errors as lines that name the key."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError

# An int stays an int: a checksum is over the JSON text, in which 1 and 1.0 differ. True is not a number.
Number = StrictInt | StrictFloat
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MAX_SHOWN = 80  # characters of a wrong value in a message
MAX_LINES = 5  # a curve may have a thousand wrong values


class FileModel(BaseModel):
    """A frozen part of a JSON file. Types are strict, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    @classmethod
    def from_disk(cls, content: Any) -> Self:
        """Returns the object of a parsed JSON value.

        Raises:
            ValidationError: keys or types are wrong; `problems` returns its lines.
        """
        return cls.model_validate(content)

    def to_disk(self) -> dict[str, Any]:
        """Returns the JSON value that the object was read from: keys that were missing stay missing."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def problems(error: ValidationError) -> list[str]:
    """Returns one line for each wrong value, at most MAX_LINES: its key, the value, and what was expected."""
    lines: dict[str, str] = {}  # by place: a union has an error for each of its types
    for one in error.errors(include_url=False):
        parts = [str(part) for part in one["loc"]]
        place = ".".join(part for part in parts if part not in ("int", "float"))
        if one["type"] == "missing":
            lines[place] = f"{place} is missing"
        elif one["type"] == "extra_forbidden":
            lines[place] = f"unknown key {place}"
        else:
            expected = one["msg"].removeprefix("Value error, ")
            if "float" in parts:
                expected = "expected a number"
            lines[place] = f"{place} is {one['input']!r:.{MAX_SHOWN}}: {expected[0].lower()}{expected[1:]}"
    found = list(lines.values())
    return found[:MAX_LINES] + ([f"and {len(found) - MAX_LINES} more"] if len(found) > MAX_LINES else [])
