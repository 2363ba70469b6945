"""Read a value from outside into a type; every error at once, in plain words."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails
from pydantic_core.core_schema import no_info_after_validator_function

from divvy.model.field_docs import field_doc
from divvy.model.problems import InvalidValue, Keys, Problem, nearest, problem, value_text

_Model = TypeVar("_Model", bound=BaseModel)
# pydantic puts this behind a key of a mapping that is wrong itself.
_KEY = "[key]"

_KIND = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}


@dataclass(frozen=True)
class Matches:
    """The form of a text, for the type's annotation; ``expected`` says it in words."""

    pattern: str
    expected: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _check(self, value: str) -> str:
        # Python's `$` would let a line break pass.
        if not re.search(self.pattern.replace("$", r"\Z"), value):
            raise ValueError(f"is {value_text(value)}; {self.expected} is expected")
        return value


def plain_keys(location: Keys, _value: object) -> Keys:
    """Return the keys that a location of pydantic's leads through."""
    return tuple(key for key in location if key != _KEY)


def read(kind: type[_Model], value: object, root: str) -> _Model:
    """Return a value as its type; raises InvalidValue with every problem.

    ``root`` is what errors call the value as a whole.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as invalid:
        raise InvalidValue(problems(kind, invalid, value, root)) from None


def problems(
    kind: type[BaseModel],
    invalid: ValidationError,
    value: object,
    root: str,
    keys_of: Callable[[Keys, object], Keys] = plain_keys,
) -> list[Problem]:
    """Return what pydantic found, in plain words.

    ``keys_of`` turns a location of pydantic's into keys of the value, where the
    two differ.
    """
    errors = invalid.errors()
    return [
        _problem(kind, error, keys_of(error["loc"], value), root)
        for error in errors
        if not _only_broken(error, errors)
    ]


def _only_broken(error: ErrorDetails, errors: list[ErrorDetails]) -> bool:
    """Return whether a list counts as empty only because pydantic leaves out its broken entries."""
    at = error["loc"]
    return error["type"] == "too_short" and any(
        other["loc"][: len(at)] == at and len(other["loc"]) > len(at) for other in errors
    )


def _problem(kind: type[BaseModel], error: ErrorDetails, keys: Keys, root: str) -> Problem:
    """Return a structural error in plain words."""
    given, context = error["input"], error.get("ctx", {})
    reason, remedy = f"is {value_text(given)}", ""
    match error["type"]:
        case "extra_forbidden":
            reason, remedy = "unknown key", nearest(str(keys[-1]), _known_keys(kind, error["loc"]))
        case "invalid_key":
            keys, reason = keys[:-1], f"has a key that is {value_text(given)}"
            remedy = "keys are text: put it in quotes if it is text"
        case "missing":
            reason, remedy = "is missing", _purpose(kind, error["loc"])
        case type_ if type_ in _KIND:
            remedy = f"{_KIND[type_]} is expected"
            if given is None and _KIND[type_] == "a mapping":
                remedy += "; write {} for an empty mapping"
            if type_ == "string_type" and not isinstance(given, dict | list):
                remedy += "; put it in quotes"
        case "greater_than_equal":
            remedy = f"{context['ge']} or more is expected"
        case "less_than_equal":
            remedy = f"{context['le']} or less is expected"
        case "literal_error":
            remedy = f"{str(context['expected']).replace(chr(39), '')} is expected"
            if not isinstance(given, str) and f"'{given}'" in context["expected"]:
                remedy += "; put it in quotes"
        case "string_too_short":
            reason, remedy = "is empty", "text is expected"
        case "too_short":
            reason, remedy = "is empty", "at least one entry is expected"
        case "too_long":
            reason = f"has {context['actual_length']} entries"
            remedy = f"{context['max_length']} or fewer are expected"
        case "value_error" | "assertion_error":
            reason, _, remedy = str(context["error"]).partition("; ")
        case _:
            remedy = error["msg"][0].lower() + error["msg"][1:]
    return problem(keys, reason, remedy, root=root)


def _model_at(kind: type[BaseModel], location: Keys) -> type[BaseModel]:
    """Return the part of a type that a location of pydantic's lies in."""
    for key in location:
        part = _part(kind, key)
        if part is not None:
            kind = part
    return kind


def _part(model: type[BaseModel], key: str | int) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return model_in(field.annotation)
    return None


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the type of the mappings that an annotation allows, None for none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        model = model_in(argument)
        if model is not None:
            return model
    return None


def _known_keys(kind: type[BaseModel], location: Keys) -> list[str]:
    fields = _model_at(kind, location[:-1]).model_fields
    return [field.alias or name for name, field in fields.items()]


def _purpose(kind: type[BaseModel], location: Keys) -> str:
    part = _model_at(kind, location[:-1])
    for name, field in part.model_fields.items():
        doc = field_doc(part, name)
        if field.alias == location[-1] and doc:
            return f"what it says: {doc.rstrip('.')}"
    return ""
