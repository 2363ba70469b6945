"""Whether the node's runtime resolves CDI names, from its version and its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.agent.cdi_support import cdi_is_on

NEW, OLD = '[plugins."io.containerd.cri.v1.runtime"]\n', '[plugins."io.containerd.grpc.v1.cri"]\n'
IMPORT = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'


@pytest.mark.parametrize(
    ("runtime", "root", "on"),
    [
        ("containerd://2.3.0", None, True),
        ("containerd://v2.0.1", "version = 3\n", True),
        ("containerd://1.7.24", "version = 2\n", False),
        ("containerd://1.7.24", f"version = 2\n{OLD}enable_cdi = true\n", True),
        ("containerd://2.3.0", f"version = 4\n{NEW}enable_cdi = false\n", False),
        ("", f"version = 4\n{NEW}enable_cdi = true\n", True),
        ("", None, False),
        ("containerd://2.3.0", "not TOML at all", True),
        ("cri-o://1.33.1", None, True),
        ("docker://28.0.1", f"{NEW}enable_cdi = true\n", False),
    ],
)
def test_a_file_counts_before_the_versions_default(
    runtime: str, root: str | None, on: bool, tmp_path: Path
) -> None:
    if root is not None:
        (tmp_path / "config.toml").write_text(root)
    assert cdi_is_on(runtime, tmp_path) is on


def test_the_last_file_counts(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config.toml").write_text(f"{IMPORT}version = 3\n{NEW}enable_cdi = false\n")
    assert not cdi_is_on("containerd://2.3.0", tmp_path)
    (tmp_path / "conf.d/90-divvy.toml").write_text(f"version = 3\n{NEW}enable_cdi = true\n")
    assert cdi_is_on("containerd://2.3.0", tmp_path)
    (tmp_path / "conf.d/99-other.toml").write_text(f"version = 3\n{NEW}enable_cdi = false\n")
    assert not cdi_is_on("containerd://2.3.0", tmp_path)
