"""Whether the node's runtime resolves CDI names, from its version and its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from divvy.agent.inject.cdi_support import _report, cdi_is_on

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
        # Since 2.4 nothing switches it off.
        ("containerd://2.4.2", f"version = 4\n{NEW}enable_cdi = false\n", True),
        ("containerd://v3.0.0-beta.1", f"version = 4\n{NEW}enable_cdi = false\n", True),
        ("containerd://2.10.0", f"version = 4\n{NEW}enable_cdi = false\n", True),
        ("", f"version = 4\n{NEW}enable_cdi = true\n", True),
        ("", None, False),
        ("containerd://2.3.0", "not TOML at all", True),
        ("cri-o://1.33.1", None, True),
        ("docker://28.0.1", f"{NEW}enable_cdi = true\n", False),
    ],
)
def test_prefers_the_runtimes_file_to_its_versions_default(
    runtime: str, root: str | None, on: bool, tmp_path: Path
) -> None:
    if root is not None:
        (tmp_path / "config.toml").write_text(root)
    assert cdi_is_on(runtime, tmp_path) is on


def test_lets_the_last_file_win(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config.toml").write_text(f"{IMPORT}version = 3\n{NEW}enable_cdi = false\n")
    assert not cdi_is_on("containerd://2.3.0", tmp_path)
    (tmp_path / "conf.d/90-divvy.toml").write_text(f"version = 3\n{NEW}enable_cdi = true\n")
    assert cdi_is_on("containerd://2.3.0", tmp_path)
    (tmp_path / "conf.d/99-other.toml").write_text(f"version = 3\n{NEW}enable_cdi = false\n")
    assert not cdi_is_on("containerd://2.3.0", tmp_path)


@pytest.mark.parametrize(
    ("config", "warning"),
    [
        ('imports = ["."]', "what '.' imports is not below"),
        ('imports = [""]', "what '' imports is not below"),
        ("imports = 5", "imports is 5; a list of paths is expected"),
        ("imports = true", "imports is True; a list"),
        ('imports = "conf.d/*.toml"', "imports is 'conf.d/*.toml'; a list"),
        ("imports = [5]", "imports has 5; a path"),
        ('imports = ["../../etc/shadow"]', "'../../etc/shadow' imports is not below"),
        ('imports = ["/srv/*.toml"]', "'/srv/*.toml' imports is not below"),
        ('imports = ["/etc/containerd/**.toml"]', None),
        ('imports = ["/etc/containerd/[.toml"]', None),
        ('imports = ["conf.d/[*.toml"]', None),
        ('imports = ["conf.d"]', "conf.d cannot be read"),
        ('imports = ["\\u0000*", "a\\u0000"]', "a\x00 cannot be read"),
        ("plugins = 5", None),
        ("plugins = [[1]]", None),
        ('plugins."io.containerd.cri.v1.runtime" = 5', None),
        ('plugins."io.containerd.cri.v1.runtime" = {enable_cdi = "yes"}', None),
        ("x = " + "[" * 5000, "config.toml cannot be read"),
        ("x = '\x00'", "config.toml cannot be read"),
    ],
)
def test_reports_an_odd_file_once_without_raising(
    config: str, warning: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _report.cache_clear()
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config.toml").write_text(config)
    for _ in range(3):
        assert cdi_is_on("containerd://2.3.0", tmp_path)
        assert not cdi_is_on("containerd://1.7.27", tmp_path)
    assert [warning in line for line in caplog.messages] == ([] if warning is None else [True])


def test_reports_a_link_out_of_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _report.cache_clear()
    (tmp_path / "config.toml").symlink_to("/srv/containerd.toml")
    assert not cdi_is_on("containerd://1.7.27", tmp_path)
    assert "a link that leads out of /etc/containerd" in caplog.text


@pytest.mark.parametrize("imports", ['["conf.d/*.toml"]', '["./x/../conf.d/**.toml"]'])
def test_follows_imports_as_containerd_does(imports: str, tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config.toml").write_text(f"imports = {imports}\n{NEW}enable_cdi = false\n")
    (tmp_path / "conf.d/a.toml").write_text('imports = ["more.d/.b.toml", "../config.toml"]\n')
    (tmp_path / "conf.d/more.d").mkdir()
    (tmp_path / "conf.d/more.d/.b.toml").write_text(f"{NEW}enable_cdi = true\n")
    assert cdi_is_on("containerd://1.7.27", tmp_path)


def test_treats_an_unreadable_import_as_absent(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'imports = ["{"a" * 5000}/*"]\n')
    assert cdi_is_on("containerd://2.1.0", tmp_path)


def test_skips_a_fifo_among_the_files(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('imports = ["x.toml"]\n')
    os.mkfifo(tmp_path / "x.toml")
    assert cdi_is_on("containerd://2.1.0", tmp_path)
