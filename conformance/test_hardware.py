"""What only hardware can show; open until it has been run on hardware."""

from __future__ import annotations

import pytest

from conformance.catalogue import check
from conformance.promise import DevicePromise


@check("HW-01")
def test_compute_share_follows_the_slice(promise: DevicePromise) -> None:
    pytest.skip(f"not measured yet for {promise.resource}: nothing is claimed")


@check("HW-02")
def test_bandwidth_follows_the_slice(promise: DevicePromise) -> None:
    pytest.skip(f"not measured yet for {promise.resource}: nothing is claimed")


@check("HW-03")
def test_faults_stay_in_their_slice(promise: DevicePromise) -> None:
    pytest.skip(f"not measured yet for {promise.resource}: nothing is claimed")
