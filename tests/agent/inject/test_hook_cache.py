"""The loader's cache that the hook makes: the driver's libraries are found by it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from divvy.image.build import compile_hook
from tests.agent.inject.bundle import (
    BUILD,
    CONF,
    FOLDER,
    Container,
    administrator,
)


@administrator
def test_names_the_drivers_library_in_the_cache(container: Container) -> None:
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{FOLDER}/libm.so.6" in container.cached()
    assert (container.root / "opt/driver/libm.so.6").readlink() == Path("libm.so.550.1")
    assert (container.root / CONF[1:]).read_text() == f"{FOLDER}\n"
    assert (container.root / "etc/ld.so.cache").stat().st_mode & 0o777 == 0o644
    # What was mounted for the purpose has gone with its namespace.
    assert list((container.root / "proc").iterdir()) == []


@administrator
def test_loads_an_images_own_compat_first_on_an_older_driver(
    container: Container,
) -> None:
    (container.root / "usr/local/cuda-13.0/compat").mkdir(parents=True)
    (container.root / "usr/local/cuda").symlink_to("/usr/local/cuda-13.0")
    compat = container.root / "usr/local/cuda-13.0/compat/libcuda.so.580.65.06"
    shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", compat)
    container.environment = ["NVIDIA_REQUIRE_CUDA=cuda>=12.0"]
    assert container.call().returncode == 0
    assert "compat" not in (container.root / CONF[1:]).read_text()
    container.environment = ["NVIDIA_REQUIRE_CUDA=cuda>=13.0"]
    assert container.call().returncode == 0
    assert (container.root / CONF[1:]).read_text() == f"/usr/local/cuda/compat\n{FOLDER}\n"


@administrator
def test_leaves_an_image_without_a_c_library_alone(container: Container) -> None:
    (container.root / "lib64/ld-linux-x86-64.so.2").unlink()
    assert container.call().returncode == 0
    assert not (container.root / "etc/ld.so.cache").exists()


@administrator
def test_works_in_a_pods_user_namespace(container: Container) -> None:
    container.program = compile_hook(BUILD)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", *container.command()],
        input=container.state,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{FOLDER}/libm.so.6" in container.cached()
