"""The catalogue of checks and the checks of the suite."""

import re
from pathlib import Path

import conformance
from conformance.catalogue import CATALOGUE

SUITE = Path(conformance.__file__).parent


def test_has_one_test_for_every_check() -> None:
    proven = [
        identity
        for path in SUITE.rglob("test_*.py")
        for identity in re.findall(r'^@check\(\s*"([A-Z]+-\d+)"', path.read_text(), re.MULTILINE)
    ]
    assert len(proven) > 100
    assert sorted(proven) == sorted(CATALOGUE)


def test_runs_groups_in_order_and_checks_by_number() -> None:
    identities = [*CATALOGUE]
    assert identities[0] == "INST-01"
    assert identities.index("NODE-02") < identities.index("NODE-10") < identities.index("PLUG-01")
