"""Reads manifests from files: every document with its place, for errors."""

import sys
from collections.abc import Sequence
from pathlib import Path

from divvy.plan.fit.manifests import Document
from divvy.stack.yaml_documents import yaml_documents
from divvy.stack.yaml_text import read_text, text_of

_STDIN = "-"


def read_documents(files: Sequence[Path]) -> list[Document]:
    """Return the documents of files in their order; ``-`` is standard input."""
    return [document for file in files for document in _of_file(file)]


def _of_file(file: Path) -> list[Document]:
    name = "standard input" if str(file) == _STDIN else str(file)
    text = text_of(sys.stdin, name) if str(file) == _STDIN else read_text(file)
    return [
        Document(f"{name}: document {number}", value)
        for number, value in enumerate(yaml_documents(name, text), start=1)
    ]
