"""The folder of the policy pack: what a copy of it needs, and begins with."""

from __future__ import annotations

from divvy.lab.paths import REPOSITORY
from tests.test_dependencies import imported, name_of

PACK = REPOSITORY / "policy_pack"


def test_imports_only_what_its_requirements_install() -> None:
    listed = {name_of(line) for line in (PACK / "requirements.txt").read_text().splitlines()}
    names = {name.replace("_", "-") for name in imported(PACK / "__main__.py")}
    assert names == listed - {"divvy-gpu"}


def test_installs_the_pinned_version() -> None:
    (wanted,) = (
        line
        for line in (PACK / "requirements.txt").read_text().splitlines()
        if line.startswith("pulumi-policy")
    )
    assert wanted in (REPOSITORY / "requirements/policy.in").read_text().splitlines()


def test_begins_with_the_policy_of_the_page() -> None:
    page = (REPOSITORY / "docs/review-in-ci.md").read_text()
    assert f"```yaml\n{(PACK / 'policy.yaml').read_text()}```" in page
