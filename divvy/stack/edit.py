"""Change one value in a stack file, the file otherwise as people left it."""

from __future__ import annotations

import io
import re
import stat
from collections.abc import Mapping

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from divvy.atomic_file import replace_file
from divvy.stack.config import full_key
from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_path
from divvy.stack.project import Project

# A byte order mark, comments and directives up to `---`: a writer would lose them.
_START = re.compile(r"\ufeff?((([#%][^\n]*|[ \t]*)\n)*---([ \t]+#[^\n]*|[ \t]*)\n)?")


def set_value(
    project: Project, stack: str, key: str, value: str | Mapping[str, str], *, salt: str | None
) -> None:
    """Set one value of a stack's ``config``; raises StackError and then changes nothing.

    A secret is ``{"secure": <encrypted text>}``; ``salt`` is what it was encrypted with.
    """
    # Pulumi's older form, NAMESPACE:config:NAME, means the same (config.ParseKey).
    key = re.sub(r"^([^:]*):config:([^:]*)$", r"\1:\2", key)
    namespace, _, name = key.partition(":")
    if not (namespace and name) or ":" in name:
        raise StackError(f"{key!r} is not a key: NAME or NAMESPACE:NAME is expected")
    path = project.stack_path(stack)
    file = read_path(path)
    changed = _with_value(project, file, key, value, salt)
    StackFile(file.source, changed, stack).refuse_unread_keys()
    # A stack's file may be a link to one that several folders share.
    target = path.resolve()
    try:
        before = target.read_bytes()
        if 0 < before.count(b"\n") == before.count(b"\r\n"):
            changed = changed.replace("\n", "\r\n")
        replace_file(target, changed.encode(), stat.S_IMODE(target.stat().st_mode))
    except OSError as error:
        raise StackError(f"cannot write {path}: {error.strerror}") from None


def _with_value(
    project: Project,
    file: StackFile,
    key: str,
    value: str | Mapping[str, str],
    salt: str | None,
) -> str:
    file.refuse_duplicates()
    if not isinstance(file.document.get("config") or {}, dict):
        raise StackError(f"{file.source}: `config` is not a mapping")
    start = _START.match(file.text)
    head = start[0] if start else ""
    yaml, document = _round_trip(file.text.removeprefix(head))
    config = document.get("config")
    if config is None:
        document["config"] = config = CommentedMap()
    written = next((name for name in config if full_key(project, str(name)) == key), key)
    before = config.get(written)
    if isinstance(before, list) or (isinstance(before, dict) and {*before} != {"secure"}):
        raise StackError(f"{file.source}: {key} is structured: edit the file")
    # In quotes, since YAML's versions disagree on what `yes` or `012` mean.
    config[written] = (
        DoubleQuotedScalarString(value) if isinstance(value, str) else CommentedMap(value)
    )
    if salt is not None and document.get("encryptionsalt") is None:
        document.pop("encryptionsalt", None)
        document.insert(0, "encryptionsalt", salt)
    elif salt is not None and document["encryptionsalt"] != salt:
        raise StackError(f"{file.source}: its encryptionsalt has just been set: run again")
    stream = io.StringIO()
    yaml.dump(document, stream)
    return head + stream.getvalue()


def _round_trip(text: str) -> tuple[YAML, CommentedMap]:
    """Return a document, and a writer that keeps its style: comments, quotes, indentation."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = len(text) + 1000  # lines stay as long as they are
    yaml.explicit_start = text.startswith("---")
    document: CommentedMap = yaml.load(text)
    blocks = [
        value.lc.col
        for value in document.values()
        if isinstance(value, CommentedMap) and value and not value.fa.flow_style()
    ]
    mapping = blocks[0] if blocks else 2
    _, _, offset = load_yaml_guess_indent(text)
    yaml.indent(mapping=mapping, sequence=(offset or 0) + 2, offset=offset or 0)
    return yaml, document
