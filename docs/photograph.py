"""Photograph pages for docs/pictures with chromium: python -m docs.photograph [PICTURE=PAGE ...].

It takes the difference that the demo shows, and pages of a cluster where they are named:
``report.png=out/conformance/report.html`` of a run of `divvy verify`, ``top.png=top.html`` of
`divvy top -o html`. Of which difference it was is kept, so that a test notices an old picture.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.cluster.paths import REPOSITORY

PICTURES = Path(__file__).parent / "pictures"
DIGESTS = PICTURES / "taken.json"
_SIZES = {"diff.png": (1000, 760), "report.png": (1000, 1250), "top.png": (1300, 2360)}


def diff_page(folder: Path) -> Path:
    """Write the page of the demo's change, as `divvy diff HEAD lab -o html` does."""
    name = "stacks/Pulumi.lab.yaml"
    before = (REPOSITORY / name).read_text()
    changed = before.replace("        profile: split\n", "        profile: cern-mix\n")
    if changed == before:
        raise ValueError(f"{name} has no pool with the profile split")
    (folder / "stacks").mkdir()
    (folder / "Pulumi.yaml").write_text((REPOSITORY / "Pulumi.yaml").read_text())
    (folder / name).write_text(before)
    identity = ("-c", "user.name=divvy", "-c", "user.email=divvy@example")
    for arguments in (("init", "--quiet"), ("add", "."), (*identity, "commit", "-qm", "lab")):
        subprocess.run(("git", *arguments), cwd=folder, check=True)
    (folder / name).write_text(changed)
    divvy = (sys.executable, "-c", "from divvy.cli.main import main; main()")
    page = folder / "diff.html"
    done = subprocess.run(
        (*divvy, "diff", "HEAD", "lab", "-o", "html", "--out", str(page)), cwd=folder, check=False
    )
    if done.returncode != 2:
        raise ValueError(f"divvy diff ended with {done.returncode}, not with a change")
    return page


def digest(page: Path) -> str:
    """Return what stands for a page's content."""
    return hashlib.sha256(page.read_bytes()).hexdigest()


def _photograph(page: Path, picture: str) -> None:
    command = ("chromium", "--headless", "--no-sandbox", "--hide-scrollbars")
    width, height = _SIZES[picture]
    size = f"--window-size={width},{height}"
    target = f"--screenshot={PICTURES / picture}"
    subprocess.run((*command, size, target, page.as_uri()), check=True, capture_output=True)


def main() -> None:
    """Take them."""
    with tempfile.TemporaryDirectory(prefix="divvy-photograph-") as folder:
        pages = {"diff.png": diff_page(Path(folder))}
        for argument in sys.argv[1:]:
            picture, _, page = argument.partition("=")
            if picture not in _SIZES or not Path(page).is_file():
                sys.exit(f"{argument}: PICTURE=PAGE is expected, {', '.join(_SIZES)} of a file")
            pages[picture] = Path(page).resolve()
        for name, path in pages.items():
            _photograph(path, name)
        DIGESTS.write_text(json.dumps({"diff.png": digest(pages["diff.png"])}) + "\n")


if __name__ == "__main__":
    main()
