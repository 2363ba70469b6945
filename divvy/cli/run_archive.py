"""The archive of a run as a file: read and written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from divvy.errors import fail
from divvy.reports.archive import (
    REPORT,
    SUMS,
    DamagedArchive,
    checksums,
    pack,
    report_json,
    unpack,
)
from divvy.reports.product import product_file
from divvy.reports.shape import is_report
from divvy.stack.file import StackFile

ARCHIVE = "conformance.tar.gz"
PRODUCT = "PRODUCT.yaml"
_GZIP = b"\x1f\x8b"


def read_report(path: Path) -> dict[str, Any]:
    """Read the report of an earlier run: its report.yaml, or its archive."""
    try:
        content = path.read_bytes()
        text = unpack(content)[REPORT] if content.startswith(_GZIP) else content
        document = yaml.safe_load(text)
    # A date that is none is a ValueError of the YAML reader.
    except (OSError, yaml.YAMLError, DamagedArchive, KeyError, ValueError) as problem:
        fail(f"the earlier report cannot be read: {path}: {problem}")
    except RecursionError:
        fail(f"the earlier report cannot be read: {path}: it is nested too deeply")
    if not is_report(document):
        fail(f"{path} is neither a report.yaml nor the archive of an earlier run")
    return dict(document)


def write_product(out: Path, document: Mapping[str, Any]) -> None:
    """Write the rows of the product file, which the archive takes with it."""
    text = yaml.safe_dump(product_file(document), sort_keys=False, width=100)
    (out / PRODUCT).write_text(text, encoding="utf-8")


def write_archive(out: Path, document: Mapping[str, Any], stack: StackFile | None) -> bytes:
    """Write the archive beside the reports of a run; return its bytes."""
    names = ["junit.xml", "ctrf.json", *([PRODUCT] if (out / PRODUCT).exists() else [])]
    files = {name: (out / name).read_bytes() for name in names}
    files[REPORT] = report_json(document)
    files["versions.json"] = report_json(document["environment"])
    if stack is not None:
        # As it was read: it may have been edited during the run.
        files[Path(stack.source).name] = stack.text.encode()
    files[SUMS] = checksums(files)
    content = pack(files)
    (out / ARCHIVE).write_bytes(content)
    return content
