"""What all models of files share: strict types, no unknown keys, and errors that name the key."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError

# An int stays an int: a checksum is over the JSON text, in which 1 and 1.0 differ. True is not a number.
Number = StrictInt | StrictFloat
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MAX_SHOWN = 80  # characters of a wrong value in a message
# types in unions, which pydantic adds to the place of an error
UNITED = {"int", "float", "str", "Reduction"}
UNITED_AS = ("str-enum[", "function-after[")  # enumerations, and models with a validator
MAX_PARTS = 5  # a curve may have a thousand wrong values


class FileModel(BaseModel):
    """A frozen part of a JSON file. Types are strict, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True)

    @classmethod
    def from_disk(cls, content: Any) -> Self:
        """Returns the object of a parsed JSON value.

        Raises:
            ValueError: keys or types are wrong; the message has a part for each, at most MAX_PARTS.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise ValueError("; ".join(_problems(error))) from None

    def to_disk(self) -> dict[str, Any]:
        """Returns the JSON value that the object was read from: keys that were missing stay missing."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _problems(error: ValidationError) -> list[str]:
    """Returns one part for each wrong value, at most MAX_PARTS: its key, the value, and what was expected."""
    lines: dict[str, str] = {}  # by place: a union has an error for each of its types
    for one in error.errors(include_url=False):
        parts = [str(part) for part in one["loc"]]
        place = ".".join(part for part in parts if part not in UNITED and not part.startswith(UNITED_AS))
        if one["type"] == "missing":
            lines[place] = f"{place} is missing"
        elif one["type"] == "enum" and place in lines:  # of a union of enumerations
            lines[place] += f", or {one['ctx']['expected']}"
        elif one["type"] == "extra_forbidden":
            lines[place] = f"unknown key {place}"
        else:
            expected = one["msg"].removeprefix("Value error, ")
            if "float" in parts:
                expected = "expected a number"
            lines[place] = f"{place} is {one['input']!r:.{MAX_SHOWN}}: {expected[0].lower()}{expected[1:]}"
    found = list(lines.values())
    return found[:MAX_PARTS] + ([f"and {len(found) - MAX_PARTS} more"] if len(found) > MAX_PARTS else [])
