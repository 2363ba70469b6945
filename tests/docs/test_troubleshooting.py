"""Every sentence that docs/troubleshooting.md quotes is one that the code says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
QUOTED = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
# What others say: the scheduler, containerd, runc.
FOREIGN = {
    "Insufficient nvidia.com/…",
    "unresolvable CDI devices divvy.gpu/…",
    "error creating device nodes: mount src=/dev/nvidiactl",
}
ROOMS = ("divvy", "conformance", "plugin_image")


@pytest.fixture(scope="module")
def sources() -> str:
    """Return all text of the sources, with literals that follow each other made one."""
    paths = [
        path for room in ROOMS for end in ("py", "c") for path in (ROOT / room).rglob(f"*.{end}")
    ]
    text = "\n".join(path.read_text() for path in paths)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_has_quotes_of_messages() -> None:
    assert len(QUOTED) > 30


def test_keeps_symptoms_in_one_table() -> None:
    pages = (ROOT / "docs").glob("*.md")
    assert not [path.name for path in pages if "| symptom |" in path.read_text()]


@pytest.mark.parametrize("quote", [sentence for sentence in QUOTED if sentence not in FOREIGN])
def test_quotes_only_sentences_of_the_code(sources: str, quote: str) -> None:
    for part in re.split(r"\s*…[;:]?\s*", quote):
        assert part.rstrip(":") in sources, f"nothing in {', '.join(ROOMS)} says {part!r}"
