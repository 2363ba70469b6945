"""The functions that a file of tests has, by which lists and pages name them."""

from __future__ import annotations

import ast
from functools import cache

from lab.cluster.paths import REPOSITORY


@cache
def functions_of(file: str) -> frozenset[str]:
    """Return the names of a file's functions; it is below ``tests/``, or begins ``lab/tests/``."""
    folder = REPOSITORY if file.startswith("lab/") else REPOSITORY / "tests"
    tree = ast.parse((folder / file).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(statement.name for statement in tree.body if isinstance(statement, kinds))
