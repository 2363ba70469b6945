"""Reads the documentation of a type's fields from the strings below them.

Read from the source when it is asked for: pydantic would read it whenever the types are
loaded, a third of the time that takes, and only errors and documents need it.
"""

import ast
import inspect
import sys
from functools import cache
from pathlib import Path

from pydantic import BaseModel


def field_doc(part: type[BaseModel], field: str) -> str:
    """Return the text below a field of a type, "" if there is none."""
    source = sys.modules[part.__module__].__file__
    return "" if source is None else _docs(source).get((part.__name__, field), "")


@cache
def _docs(source: str) -> dict[tuple[str, str], str]:
    docs: dict[tuple[str, str], str] = {}
    try:
        text = Path(source).read_text("utf-8")
    except OSError:
        return docs  # installed without sources: an error then says no more than where it is
    for part in ast.parse(text).body:
        if not isinstance(part, ast.ClassDef):
            continue
        for field, below in zip(part.body, part.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str(doc))):
                        docs[part.name, field.target.id] = inspect.cleandoc(doc)
    return docs
