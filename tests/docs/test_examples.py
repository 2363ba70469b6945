"""The examples of the reference pages: valid, and what the text beside them says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from divvy.model import parse_cluster
from docs.generate import EXAMPLES
from lab.cluster.paths import REPOSITORY
from tests.docs.page_commands import Shell

OTHER = {
    "profiles": {"whole": {}, "turns": {"timeSlicing": {"replicas": 4}}},
    "pools": {
        "a": {
            "profile": "whole",
            "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 1},
        }
    },
}


@pytest.mark.parametrize("part", EXAMPLES)
def test_documents_valid_examples_on_the_stack_files_page(part: str) -> None:
    example = yaml.safe_load(EXAMPLES[part])
    profiles = {**OTHER["profiles"], **example.get("profiles", {})}
    pools = example.get("pools", OTHER["pools"])
    # Each profile is used: what no pool uses is checked less.
    for number, name in enumerate(example.get("profiles", ())):
        pools = {
            **pools,
            name: {
                "profile": name,
                "select": {"example.org/pool": str(number)},
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 1},
            },
        }
    parse_cluster({"profiles": profiles, "pools": pools})


def test_documents_a_valid_stack_file() -> None:
    """The example at the top of the page, which is a whole file."""
    page = (REPOSITORY / "docs/stack-file.md").read_text()
    example = yaml.safe_load(page.split("```yaml\n")[1].partition("```")[0])
    cluster = parse_cluster(example["config"]["divvy:cluster"])
    assert {pool.profile for pool in cluster.pools.values()} == cluster.profiles.keys()


def test_gives_the_pages_claim_its_share(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/claims.md").read_text()
    (block,) = [
        section for section in text.split("```yaml\n")[1:] if "kind: ResourceClaim" in section
    ]
    (tmp_path / "claim.yaml").write_text(block.partition("```")[0])
    shell = Shell(REPOSITORY, tmp_path / "programs")
    shown = shell.run(f"divvy fit {tmp_path / 'claim.yaml'} -s lab")
    assert "default/train: fits" in shown
