"""The archive of a run as a file: read, written, signed."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from divvy.cli.errors import fail
from divvy.reports.archive import (
    REPORT,
    SIGNATURE,
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
# Of `ssh-keygen -Y sign`: a signature is good for this use alone.
NAMESPACE = "divvy-conformance"
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


def write_archive(
    out: Path, document: Mapping[str, Any], stack: StackFile | None, key: Path | None
) -> bytes:
    """Write the archive beside the reports of a run, signed by a key; return its bytes."""
    names = ["junit.xml", "ctrf.json", *([PRODUCT] if (out / PRODUCT).exists() else [])]
    files = {name: (out / name).read_bytes() for name in names}
    files[REPORT] = report_json(document)
    files["versions.json"] = report_json(document["environment"])
    if stack is not None:
        # As it was read: it may have been edited during the run.
        files[Path(stack.source).name] = stack.text.encode()
    files[SUMS] = checksums(files)
    if key is not None:
        files[SIGNATURE] = _signature(files[SUMS], key)
    content = pack(files)
    (out / ARCHIVE).write_bytes(content)
    return content


def require_signer(key: Path | None) -> None:
    """Fail before a run that its key could not sign."""
    if key is None:
        return
    if not key.is_file():
        fail(f"--key={key}: there is no such file")
    if shutil.which("ssh-keygen") is None:
        fail("--key needs ssh-keygen, of OpenSSH")
    _signature(b"", key)


def _signature(sums: bytes, key: Path) -> bytes:
    """Sign the checksums as `make dist` does."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, SUMS)
        file.write_bytes(sums)
        command = ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, file]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            fail(f"the archive cannot be signed: {done.stderr.strip()}")
        return Path(scratch, SIGNATURE).read_bytes()
