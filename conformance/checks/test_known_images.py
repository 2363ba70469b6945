"""Images from elsewhere that are given by option run on every kind of device."""

from __future__ import annotations

import pytest

from conformance.check import EVERY, check
from conformance.evidence import Evidence
from conformance.fixtures import KnownImages
from conformance.load.known_images import BURN_ARGUMENTS, BURN_MIB, gpu_burn, vector_add
from conformance.promise import DevicePromise
from conformance.skips import not_applicable


@check(
    "WORK-04",
    "a vectorAdd image from elsewhere passes",
    "SHOULD",
    EVERY,
    "images with the CUDA runtime inside need a real driver that is new enough for them",
)
def test_the_vector_add_image_passes(
    known_images: KnownImages, promise: DevicePromise, evidence: Evidence
) -> None:
    outcome = known_images.vector_adds[promise]
    evidence.command = f"image {known_images.vector_add}"
    evidence.add(outcome.log)
    verdict = vector_add(outcome.code, outcome.log)
    seen = verdict.words if outcome.code is not None else outcome
    evidence.require_that(verdict.passed, "exit code 0, Test PASSED or Result = PASS", seen)


@check(
    "WORK-05",
    "a gpu-burn image from elsewhere computes without an error",
    "SHOULD",
    EVERY,
    "a GPU that computes wrongly must be taken out of service",
)
@pytest.mark.exclusive
def test_the_gpu_burn_image_is_ok(
    known_images: KnownImages, promise: DevicePromise, evidence: Evidence
) -> None:
    memory = promise.device.memory_mib or 0
    if memory // promise.device.shares < BURN_MIB:
        not_applicable(f"the well-known gpu-burn needs {BURN_MIB} MiB; a replica has less")
    outcome = known_images.burns[promise]
    evidence.command = f"image {known_images.gpu_burn}, arguments {' '.join(BURN_ARGUMENTS)}"
    evidence.add(outcome.log)
    verdict = gpu_burn(outcome.code, outcome.log)
    seen = verdict.words if outcome.code is not None else outcome
    evidence.require_that(verdict.passed, "every GPU OK, errors: 0, nothing died", seen)
