"""Options that change what is run: images from elsewhere, checks that need hardware."""

import hashlib
import http.client
import json
import re
import struct
from collections.abc import Callable

import pytest

from divvy.image.build import push_context
from tests.conformance.halted_burn import with_a_halted_burn
from tests.conformance.scene import Scene
from tests.conformance.test_known_images import ADDED, BURNT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
OCI = "application/vnd.oci.image"


def image_that_prints(scene: Scene, name: str, text: str, command: str) -> str:
    """Build an image that stands for one from elsewhere: it prints the lines that one prints."""
    context = scene.folder / name
    context.mkdir()
    (context / "text").write_text(text)
    script = f"FROM {scene.image}\nCOPY text /text\n{command}\n"
    (context / "Containerfile").write_text(script)
    registry, _, _ = scene.image.partition("/")
    return push_context(context, registry, f"divvy/{name}", scene.image, insecure=True)


def program_for_arm64() -> bytes:
    """Return the beginning of a program, which is all that a kernel for x86 reads of it."""
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return struct.pack("<16sHHIQQQIHHHHHH", identity, 2, 183, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)


def image_for_arm64(scene: Scene) -> str:
    """Build an image as one built on an arm64 machine: its programs are for that."""
    context = scene.folder / "arm64"
    context.mkdir()
    program = context / "true"
    program.write_bytes(program_for_arm64())
    program.chmod(0o755)
    (context / "Containerfile").write_text(f"FROM {scene.image}\nCOPY true /usr/bin/true\n")
    registry, _, _ = scene.image.partition("/")
    return push_context(context, registry, "divvy/arm64", scene.image, insecure=True)


def image_without_amd64(scene: Scene) -> str:
    """Push an image for several architectures, of which none is the nodes'."""
    registry, _, rest = scene.image.partition("/")
    name, _, digest = rest.partition("@")
    connection = http.client.HTTPConnection(registry, timeout=10)
    connection.request(
        "GET", f"/v2/{name}/manifests/{digest}", headers={"Accept": f"{OCI}.manifest.v1+json"}
    )
    answer = connection.getresponse()
    size = len(answer.read())
    platform = {"architecture": "arm64", "os": "linux"}
    kind = answer.headers["Content-Type"]
    only = {"mediaType": kind, "digest": digest, "size": size, "platform": platform}
    index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [only]}
    text = json.dumps(index).encode()
    pushed = f"sha256:{hashlib.sha256(text).hexdigest()}"
    connection.request(
        "PUT", f"/v2/{name}/manifests/{pushed}", text, {"Content-Type": f"{OCI}.index.v1+json"}
    )
    answer = connection.getresponse()
    assert answer.status == http.HTTPStatus.CREATED, answer.read()
    connection.close()
    return f"{registry}/{name}@{pushed}"


@pytest.fixture
def images(scene: Scene) -> dict[str, str]:
    # Both ask for their device, as the real ones do; the second needs its arguments.
    adds = 'CMD ["/bin/sh", "-c", "cuda-vector-add >/dev/null && cat /text"]'
    burns = (
        'ENTRYPOINT ["/bin/sh", "-c", "[ $0 = -m ] && gpu-burn -l >/dev/null && cat /text"]\n'
        'CMD ["60"]'
    )
    burnt = BURNT.format(errors=0, result="OK")
    faulty = BURNT.format(errors=0, result="FAULTY")
    return {
        "adds": image_that_prints(scene, "adds", ADDED, adds),
        "burns": image_that_prints(scene, "burns", burnt, burns),
        "faulty": image_that_prints(scene, "faulty", faulty, burns),
    }


def test_runs_images_from_elsewhere(scene: Scene, images: dict[str, str]) -> None:
    options = ("--pool=training", "--select=WORK-04,WORK-05", "--exclusive")
    first = f"--vector-add-image={images['adds']}"
    report = scene.verify(*options, first, f"--gpu-burn-image={images['burns']}", expect=0)
    assert [check["status"] for check in report["checks"]] == ["passed", "passed"], scene.output
    # Exit code 0, as the well-known tool ends although a GPU is faulty.
    report = scene.verify(*options, f"--gpu-burn-image={images['faulty']}")
    assert [(check["id"], check["status"]) for check in report["checks"]] == [("WORK-05", "failed")]
    assert "GPU 0: FAULTY" in report["checks"][0]["actual"]
    report = scene.verify(*options, f"--vector-add-image={images['faulty']}")
    assert [(check["id"], check["status"]) for check in report["checks"]] == [("WORK-04", "failed")]


@pytest.mark.parametrize("build", [image_for_arm64, image_without_amd64])
def test_judges_nothing_by_an_image_for_another_architecture(
    scene: Scene, build: Callable[[Scene], str]
) -> None:
    image = build(scene)
    options = ("--pool=training", "--select=WORK-01", f"--workload-image={image}")
    report = scene.verify(*options, expect=2)
    (check,) = report["checks"]
    assert (check["status"], check["missed"]) == ("skipped", "not made")
    assert f"the node is amd64, and {image} is not for it" in check["reason"]


def test_passes_no_hardware_check_on_simulated_gpus(scene: Scene) -> None:
    options = ("--exclusive", "--hardware-checks-anyway")
    report = scene.suite("--divvy-select=HW", "--divvy-pool=notebooks", *options)
    assert [check["id"] for check in report["checks"]] == ["HW-04"]
    check = report["checks"][0]
    # Figures of a simulation are by chance good or bad; what was run has to be there.
    assert check["status"] in ("skipped", "failed")
    assert check["evidenceLevel"] == "simulated"
    assert check["expected"].startswith("no replica below 25%")
    assert "GPU 0: OK" in check["evidence"][0]


def test_notices_a_share_that_does_not_advance(scene: Scene) -> None:
    check = with_a_halted_burn(scene, "gpu-t4", "notebooks", "HW-04")
    assert (check["id"], check["status"]) == ("HW-04", "failed"), check
    worst = re.search(r"the worst has (\d+)% of it", check["actual"])
    assert worst is not None
    assert int(worst[1]) < 25


def test_runs_a_broken_program_beside_burns(scene: Scene) -> None:
    options = ("--exclusive", "--hardware-checks-anyway", "--divvy-pool=research")
    report = scene.suite("--divvy-select=HW-03", *options, "-k=mig-3g.20gb")
    check = report["checks"][0]
    assert (check["id"], check["status"]) == ("HW-03", "skipped")
    assert "shows nothing" in check["reason"]
    assert check["actual"] == check["expected"]
    assert "7 of 7 burns OK" in check["actual"]


def test_notices_burns_that_a_neighbour_disturbs(scene: Scene) -> None:
    """Bad arithmetic stands for a fault that spreads: nothing else spreads in a simulation."""
    scene.driver("gpu-a100", "fault", "bad-math", "0")
    try:
        options = ("--exclusive", "--hardware-checks-anyway", "--divvy-pool=research")
        report = scene.suite("--divvy-select=HW-03", *options, "-k=mig-3g.20gb")
    finally:
        scene.driver("gpu-a100", "fault", "clear", "0")
    assert [(check["id"], check["status"]) for check in report["checks"]] == [("HW-03", "failed")]
