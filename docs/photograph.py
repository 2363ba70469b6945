"""Photograph pages for docs/pictures with chromium: python -m docs.photograph [REPORT].

It takes the difference that the demo shows, and the page of a run of `divvy verify`, where one is
named. Of which difference it was is kept, so that a test notices an old picture.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from divvy.lab.paths import REPOSITORY

PICTURES = Path(__file__).parent / "pictures"
TAKEN = PICTURES / "taken.json"
_WIDTH, _HEIGHTS = 1000, {"diff.png": 760, "report.png": 1250}


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
    size = f"--window-size={_WIDTH},{_HEIGHTS[picture]}"
    target = f"--screenshot={PICTURES / picture}"
    subprocess.run((*command, size, target, page.as_uri()), check=True, capture_output=True)


def main() -> None:
    """Take them."""
    with tempfile.TemporaryDirectory(prefix="divvy-photograph-") as folder:
        pages = {"diff.png": diff_page(Path(folder))}
        if len(sys.argv) > 1:
            pages["report.png"] = Path(sys.argv[1]).resolve()
        for picture, page in pages.items():
            _photograph(page, picture)
        TAKEN.write_text(json.dumps({"diff.png": digest(pages["diff.png"])}) + "\n")


if __name__ == "__main__":
    main()
