"""The container hook and the CDI specification in a container: the loader finds the driver."""

from __future__ import annotations

import re

from hardware_kit.container import Container, was_refused
from hardware_kit.injected import inject
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings

_TOO_NEW = "cuda>=99.0"


def run(settings: KitSettings, notes: Notes) -> None:
    """Run programs in a container that has one GPU by CDI."""
    injected = inject(settings)
    container = Container(settings, settings.scratch / "plain", injected.spec, settings.gpu)
    container.make()
    listed = container.run("nvidia-smi", "-L")
    notes.equal("GPUs that nvidia-smi lists in the container", 1, listed.stdout.count("UUID: GPU-"))
    own = f"UUID: {settings.gpu})" in listed.stdout
    notes.equal("it is the one that was given", "yes", "yes" if own else "no")
    cached = container.cached()
    state = "listed" if "libcuda.so.1" in cached else "not listed"
    notes.equal("libcuda.so.1 in the loader's cache", "listed", state)
    added = container.run("cuda-vector-add")
    passed = added.returncode == 0 and "Test PASSED" in added.stdout
    notes.holds("cuda-vector-add by the loader alone", passed, "Test PASSED", _said(added.stdout))
    notes.holds(
        "the GPU that it ran on",
        f"UUID: {settings.gpu})" in added.stdout,
        "the one that was given",
        "the one that was given" if f"{settings.gpu})" in added.stdout else "another",
    )
    container.environment.append(f"NVIDIA_REQUIRE_CUDA={_TOO_NEW}")
    refused = container.run("cuda-vector-add")
    notes.holds(
        f"an image that says {_TOO_NEW}",
        was_refused(refused) and "cuda" in refused.stdout,
        "refused by the hook, with the reason",
        _last(refused.stdout),
    )
    print(listed.stdout, added.stdout, refused.stdout)


def _said(text: str) -> str:
    return "Test PASSED" if "Test PASSED" in text else _last(text)


def _last(text: str) -> str:
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
