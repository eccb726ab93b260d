"""Types of parsed JSON and YAML."""

from typing import Any, TypeAlias

# any value of JSON
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
# nested settings: the keys of a recipe, of a model's constructor or of an encoding
Settings = dict[str, Any]
