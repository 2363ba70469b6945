"""``StackPart``, the base type of every mapping of a stack file, and the types of its values."""

from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from divvy.model.quantities import (
    DURATION_PATTERN,
    MEMORY_PATTERN,
    parse_duration,
)
from divvy.model.validation import Matches


def camel_case(name: str) -> str:
    """Return a field's name as files write it: ``min_version`` is ``minVersion``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _version_text(value: object) -> object:
    if isinstance(value, float):
        raise ValueError(  # noqa: TRY004 (pydantic reports no other)
            f"is the number {value}, in which YAML keeps no zeros at the end (550.120 is 550.12): "
            "write it in quotes"
        )
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]
Version = Annotated[
    str,
    BeforeValidator(_version_text),
    Matches(r"^\d{1,9}(\.\d{1,9}){0,5}$", "a version such as 550.163.01"),
    WithJsonSchema({"type": ["string", "integer"]}),
]
MemorySize = Annotated[
    str,
    Field(strict=True),
    WithJsonSchema({"type": "string", "pattern": MEMORY_PATTERN}),
]
Count = Annotated[int, Field(strict=True, ge=1)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Labels = Annotated[dict[str, Annotated[str, Field(strict=True)]], Field(min_length=1)]
DevicePath = Annotated[str, Field(strict=True), Matches(r"^/dev/", "a path below /dev")]
ImageDigest = Annotated[
    str,
    Field(strict=True),
    Matches(r"^\S+@sha256:[0-9a-f]{64}$", "an image by digest, …@sha256:<64 hex digits>,"),
]


class StackPart(BaseModel):
    """A mapping of a stack file; the text below a field says what it is."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=camel_case,
        populate_by_name=False,
    )
