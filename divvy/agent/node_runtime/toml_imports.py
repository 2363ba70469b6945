"""One more entry in the ``imports`` of a TOML text, everything else to the byte as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r'(?P<skip>[ \t\r]+|\#[^\n]*)|(?P<string>"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\''
    r'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')|(?P<mark>[\[\]{},=\n])|(?P<bare>[^\s\[\]{},=#"\']+)',
    re.DOTALL,
)


def with_import(text: str, entry: str) -> str:
    """Return the text with an entry at the end of its top-level ``imports``.

    The caller reads the result as TOML and compares: a key spelt in a way that is not
    looked for here ends in a second one, which no reader accepts.
    """
    quoted = f'"{entry}"'
    last = _last_of_imports(text)
    if last is None:
        newline = "\r\n" if "\r\n" in text else "\n"
        return f"imports = [{quoted}]{newline}{text}"
    end, token = last
    separator = {"[": "", ",": " "}.get(token, ", ")
    return f"{text[:end]}{separator}{quoted}{text[end:]}"


def _last_of_imports(text: str) -> tuple[int, str] | None:
    """Return where the array's last token before its ``]`` ends, and that token."""
    depth, fresh, here = 0, True, False
    last = (0, "")
    for end, token in _tokens(text):
        if depth == 0 and fresh and token == "[":
            return None  # the first table: top-level keys end here
        if depth == 0 and token == "\n":
            fresh = True
            continue
        if fresh:
            here, fresh = token.strip("\"'") == "imports", False
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
            if here and depth == 0:
                return last
        if token != "\n":
            last = end, token
    return None


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Walk over a text that is TOML: end and text of each token but blanks and comments."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return
        position = match.end()
        if match.lastgroup != "skip":
            yield position, match[0]
