"""Whether the run that has left something still lives."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cluster import run_lease
from conformance.cluster.run_lease import living
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError


class Refusing:
    """An API server that answers every lease with a refusal."""

    def __init__(self, code: int) -> None:
        self.code = code

    def get(self, *_: object) -> Any:
        raise ApiError(self.code, "no")


def test_takes_no_run_for_dead_whose_lease_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_lease, "_BEFORE_LEASE", 0)
    gone: Any = Refusing(NOT_FOUND)
    assert living(gone, ["a"], print) == frozenset()
    refused: Any = Refusing(FORBIDDEN)
    with pytest.raises(ApiError, match="no"):
        living(refused, ["a"], print)
