"""The bill of materials lists every pinned package, and is the same each time."""

from __future__ import annotations

import json

from lab.cluster.paths import REPOSITORY
from release.sbom import pinned, sbom

FIRST, SECOND = "1" * 64, "2" * 64
PINS = f"""\
# a comment
Ruamel.Yaml==0.18.1 ; python_version > "3" \\
    --hash=sha256:{SECOND} \\
    --hash=sha256:{FIRST}
h11==0.16.0 --hash=sha256:{FIRST}
"""


def test_reads_names_versions_and_hashes() -> None:
    assert pinned(PINS) == {
        ("ruamel-yaml", "0.18.1"): (FIRST, SECOND),
        ("h11", "0.16.0"): (FIRST,),
    }


def test_lists_a_package_once_with_the_files_that_pin_it() -> None:
    text = sbom("divvy-gpu", "0.2.0", {"b.txt": PINS, "a.txt": PINS}, 0)
    assert text == sbom("divvy-gpu", "0.2.0", {"a.txt": PINS, "b.txt": PINS}, 0)
    document = json.loads(text)
    assert [component["purl"] for component in document["components"]] == [
        "pkg:pypi/h11@0.16.0",
        "pkg:pypi/ruamel-yaml@0.18.1",
    ]
    assert [entry["value"] for entry in document["components"][0]["properties"]] == [
        "a.txt",
        "b.txt",
    ]
    assert document["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"


def test_finds_a_hash_for_every_pin_of_the_repository() -> None:
    for path in (REPOSITORY / "requirements").glob("*.txt"):
        pins = pinned(path.read_text())
        assert len(pins) == path.read_text().count("==")
        assert all(pins.values())
