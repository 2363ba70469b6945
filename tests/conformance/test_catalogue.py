"""The catalogue of checks and the checks of the suite."""

import re
from pathlib import Path

import conformance
from conformance.catalogue import CATALOGUE

SUITE = Path(conformance.__file__).parent


def test_has_one_test_for_every_check_of_the_catalogue() -> None:
    proven = [
        identity
        for path in SUITE.rglob("test_*.py")
        for identity in re.findall(r'^@check\("(.*)"\)', path.read_text(), re.MULTILINE)
    ]
    assert sorted(proven) == sorted(CATALOGUE)
