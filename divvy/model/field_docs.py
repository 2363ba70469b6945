"""What the text below each field of the schema says.

Read from the source when it is asked for: pydantic would read it whenever the types are
loaded, a third of the time that takes, and only errors and documents need it.
"""

import ast
import inspect
from functools import cache
from pathlib import Path

from pydantic import BaseModel

from divvy.model import stack


def field_doc(part: type[BaseModel], field: str) -> str:
    """Return the text below a field of a part of the schema, "" where there is none."""
    return _docs().get((part.__name__, field), "")


@cache
def _docs() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    try:
        source = Path(stack.__file__).read_text("utf-8")
    except OSError:
        return found  # installed without sources: an error then says no more than where it is
    for part in ast.parse(source).body:
        if not isinstance(part, ast.ClassDef):
            continue
        for field, text in zip(part.body, part.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match text:
                    case ast.Expr(value=ast.Constant(value=str(said))):
                        found[part.name, field.target.id] = inspect.cleandoc(said)
    return found
