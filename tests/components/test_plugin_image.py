"""Whether a registry still has the agent's image: yes, no, or that it cannot be told."""

from __future__ import annotations

import ast
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from divvy.bundled_sources import PACKAGE
from divvy.image import build
from divvy.image.build import BuildFailed, exists, readable_by_all
from divvy.image.platforms import (
    LINUX_ARM64,
    named_platforms,
    platform_options,
    platforms_of,
)
from divvy.pulumi_resources.agent_image import Builder

DIGEST = f"sha256:{'0' * 64}"
UNKNOWN = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'


class Registry(HTTPServer):
    """A registry without TLS; ``head`` and ``get`` are the statuses that it answers."""

    head = get = 200
    body = UNKNOWN
    accepted = ""
    server = "registry"

    def reference(self) -> str:
        return f"127.0.0.1:{self.server_port}/divvy/agent@{DIGEST}"


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        assert isinstance(self.server, Registry)
        self.server.accepted = self.headers["Accept"]
        self.send_response(self.server.head)
        if self.server.server == "registry":
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.end_headers()

    def do_GET(self) -> None:
        assert isinstance(self.server, Registry)
        body = b"{}" if self.path == "/v2/" else self.server.body
        self.send_response(200 if self.path == "/v2/" else self.server.get)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("status", "there"), [(200, True), (404, False)])
def test_asks_a_registry_whether_an_image_exists(
    registry: Registry, status: int, there: bool
) -> None:
    registry.head = status
    assert exists(registry.reference(), insecure=True) is there
    assert "application/vnd.oci.image.index.v1+json" in registry.accepted


@pytest.mark.parametrize("status", [200, 404])
def test_takes_no_word_of_a_server_that_is_no_registry(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    # Beside a registry with a certificate of its own, another program answers at port 80.
    registry.server, registry.head = "nginx", status
    answers: list[str] = []
    monkeypatch.setattr(build, "inspect", lambda reference, *_: answers.append(reference))
    assert exists(registry.reference(), insecure=True)
    assert answers == [registry.reference()]


@pytest.mark.parametrize(
    "body",
    [
        UNKNOWN,
        b'{"errors": [{"code": "NAME_UNKNOWN", "message": "repository name not known"}]}',
        # Harbor's, which the specification of registries does not have, and what it leaves out.
        b'{"errors": [{"code": "NOT_FOUND", "message": "artifact divvy/agent:a not found"}]}',
        b"",
    ],
)
def test_asks_a_registry_with_a_login_by_skopeo(registry: Registry, body: bytes) -> None:
    registry.head, registry.get, registry.body = 401, 404, body
    assert exists(registry.reference(), insecure=True) is False


@pytest.mark.parametrize(
    "body",
    [
        b'{"errors": [{"code": "PROJECTPOLICYVIOLATION", "message": "it has vulnerabilities"}]}',
        b'{"errors": [{"code": "DENIED", "message": "requested access is denied"}]}',
    ],
)
def test_does_not_assume_an_image_gone_that_a_registry_keeps_back(
    registry: Registry, body: bytes
) -> None:
    registry.head, registry.get, registry.body = 401, 412, body
    with pytest.raises(BuildFailed, match="cannot tell whether"):
        exists(registry.reference(), insecure=True)


def test_does_not_assume_an_image_gone_when_the_registry_fails(registry: Registry) -> None:
    registry.head, registry.get = 500, 500
    with pytest.raises(BuildFailed, match="cannot tell whether"):
        exists(registry.reference(), insecure=True)


def test_does_not_assume_an_image_gone_when_the_registry_is_down() -> None:
    with socket.socket() as probe:  # bound, and not listening
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(BuildFailed, match="cannot tell whether"):
            exists(f"127.0.0.1:{probe.getsockname()[1]}/divvy/agent@{DIGEST}", insecure=True)


def test_waits_for_no_registry_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ANSWER_SECONDS", 1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        reference = f"127.0.0.1:{listener.getsockname()[1]}/divvy/agent@{DIGEST}"
        with pytest.raises(BuildFailed, match=r"cannot tell whether .* deadline exceeded"):
            exists(reference, insecure=True)


def test_asks_no_named_registry_without_skopeo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildFailed, match="skopeo is not installed"):
        exists(f"registry.example/divvy/agent@{DIGEST}")


def test_lists_everything_that_a_machine_lacks_to_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildFailed) as failed:
        build.build_and_push("registry.example", "base")
    assert "buildah, make, cc not found" in str(failed.value)
    assert "plugin.image.reference" in str(failed.value)


def test_names_the_error_of_a_build_and_none_of_its_attempts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skopeo = tmp_path / "skopeo"
    skopeo.write_text(
        "#!/bin/sh\necho time=1 level=warning retrying >&2\necho Error: no host >&2\nexit 1\n"
    )
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(BuildFailed) as failed:
        exists("registry.example/agent@sha256:0")
    assert str(failed.value) == (
        "cannot tell whether registry.example/agent@sha256:0 still exists: "
        "skopeo inspect failed: Error: no host"
    )


def test_uses_a_registry_without_tls_only_when_told(
    registry: Registry,
) -> None:
    with pytest.raises(BuildFailed, match=r"`plugin\.image\.insecure: true` in the stack file"):
        exists(registry.reference())


@pytest.mark.parametrize("registry", ["127.0.0.1:5000", "localhost:5000", "10.1.2.3/path"])
@pytest.mark.parametrize(
    ("base", "insecure", "pull", "push"),
    [
        ("{registry}/base", False, "true", "true"),
        ("{registry}/base", True, "false", "false"),
        ("elsewhere.example/base", True, "true", "false"),
    ],
)
def test_verifies_tls_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    registry: str,
    base: str,
    insecure: bool,
    pull: str,
    push: str,
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(build, "_run", lambda *command: commands.append(command))
    build.push_context(tmp_path, registry, "n", base.format(registry=registry), insecure=insecure)
    assert [[part for part in command if part.startswith("--tls")] for command in commands] == [
        [f"--tls-verify={pull}"],
        [f"--tls-verify={push}"],
        [],
    ]


class Storage:
    """buildah's local images, by name, and what it has pushed where."""

    def __init__(self) -> None:
        self.images: dict[str, str] = {}
        self.pushed: list[tuple[str, ...]] = []

    def run(self, *command: str) -> str:
        """Build, push or remove; the content of an image is the name of its context."""
        if command[1] == "build":
            self.images[command[command.index("--tag") + 1]] = Path(command[-1]).name
            if command[-1].endswith("first"):
                self.build("second")
        elif command[1] == "push":
            *_, image, target = command
            self.pushed.append((self.images[image], *target.rsplit(":", 1)))
        else:
            assert command[1] == "rmi"
            for image in command[2:]:
                del self.images[image]
        return ""

    def build(self, context: str) -> None:
        build.push_context(Path(context), "r:5000", "n", "r:5000/base")


def test_pushes_its_own_image_beside_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    monkeypatch.setattr(build, "_run", storage.run)
    storage.build("first")
    second, first = storage.pushed
    assert (second[:2], first[:2]) == (
        ("second", "docker://r:5000/n"),
        ("first", "docker://r:5000/n"),
    )
    # As with images of the agent, a registry may refuse a tag that it has.
    assert second[2] != first[2]
    assert storage.images == {}


def test_gives_each_image_of_the_agent_a_tag_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # A registry may remove what has no tag, and clusters of one registry run different images:
    # also of the same sources, by another compiler or on a base whose tag has moved.
    pushed: list[str] = []

    def run(*command: str) -> str:
        if "push" in command:
            pushed.append(command[-1])
        return ""

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setattr(build, "require_tools", lambda *_: None)
    monkeypatch.setattr(build, "_lay_out", lambda *_: None)
    builds = [("a", ["linux/amd64"]), ("b", ["linux/amd64", "linux/arm64"])]
    for base, platforms in (*builds, *builds):
        build.build_and_push("r:5000", base, platforms=platforms)
    repositories, tags = zip(*(name.rsplit(":", 1) for name in pushed), strict=True)
    assert {*repositories} == {"docker://r:5000/divvy/agent"}
    # Its first part is that of the digest that the agent reports.
    sources = [build.input_digest(base)[:12] for base, _ in (*builds, *builds)]
    assert [tag.partition("-")[0] for tag in tags] == sources
    assert len({*tags}) == len(builds) * 2


def test_packs_its_own_image_beside_another_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(build, "_run", lambda *command: commands.append(command))
    monkeypatch.setattr(build, "require_tools", lambda *_: None)
    monkeypatch.setattr(build, "_lay_out", lambda *_: None)
    for folder in ("first", "second"):
        build.build_layout(tmp_path / folder / "layout", "base")
    first, pushed_first, removed_first, second, pushed_second, _ = commands
    assert [first[-2], second[-2]] == [pushed_first[-2], pushed_second[-2]]
    assert pushed_first[-2] != pushed_second[-2]
    assert pushed_first[-1] == f"oci:{tmp_path}/first/layout"
    assert removed_first == ("buildah", "rmi", first[-2])


def test_pushes_images_for_several_platforms_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(build, "_run", lambda *command: commands.append(command))
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    wanted = platforms_of(["linux/arm64", "linux/amd64", "linux/arm64"])
    build.push_contexts(dict.fromkeys(wanted, tmp_path), "r:5000", "n", "r:5000/base")
    built = [command for command in commands if command[:2] == ("buildah", "build")]
    images = [command[command.index("--tag") + 1] for command in built]
    assert [image.rpartition("-")[2] for image in images] == ["amd64", "arm64"]
    assert ["--platform=linux/arm64" in command for command in built] == [False, True]
    assert commands[-3][:4] == ("buildah", "manifest", "push", "--all")
    assert commands[-3][-1].rpartition(":")[0] == "docker://r:5000/n"
    assert commands[-1] == ("buildah", "rmi", *images)


def test_leaves_no_index_behind_if_the_push_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[tuple[str, ...]] = []

    def fail_to_push(*command: str) -> None:
        commands.append(command)
        if command[:3] in (("buildah", "manifest", "push"), ("buildah", "manifest", "rm")):
            raise BuildFailed(command[2])

    monkeypatch.setattr(build, "_run", fail_to_push)
    both = platforms_of(["linux/arm64", "linux/amd64"])
    with pytest.raises(BuildFailed, match="push"):
        build.push_contexts(dict.fromkeys(both, tmp_path), "r:5000", "n", "r:5000/base")
    (created,) = (command[3] for command in commands if command[2] == "create")
    *_, index, images = commands
    assert index == ("buildah", "manifest", "rm", created)
    assert images[:2] == ("buildah", "rmi")


def test_compiles_for_another_machine_by_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    both = platforms_of(["linux/amd64", "linux/arm64"])
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    assert build.build_tools(both) == ("buildah", "make", "cc", "aarch64-linux-gnu-gcc")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    assert build.build_tools(both) == ("buildah", "make", "x86_64-linux-gnu-gcc", "cc")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildFailed, match="x86_64-linux-gnu-gcc not found"):
        build.build_and_push("registry.example", "base")


def test_names_the_platform_that_a_base_is_not_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: str) -> None:
        raise BuildFailed(
            "buildah build failed: Error: choosing an image from manifest list: no image found in "
            'image index for architecture arm64, variant "v8", OS linux'
        )

    monkeypatch.setattr(build, "_run", refuse)
    with pytest.raises(BuildFailed, match=r"^r/base is not for linux/arm64: name a base that is"):
        build.push_contexts({LINUX_ARM64: tmp_path}, "r", "n", "r/base")


def test_builds_again_when_the_platforms_change_and_not_when_their_order_does() -> None:
    olds = {"registry": "r", "base": "b", "inputs": "i"}
    amd64, arm64 = ["linux/amd64"], ["linux/arm64"]
    assert not Builder().diff("", olds, {**olds, "platforms": amd64}).changes
    assert Builder().diff("", olds, {**olds, "platforms": amd64 + arm64}).changes
    both = {**olds, "platforms": amd64 + arm64}
    assert not Builder().diff("", both, {**olds, "platforms": arm64 + amd64}).changes


def test_passes_platforms_to_commands_that_build() -> None:
    assert platform_options(["linux/amd64"]) == ()
    options = platform_options(["linux/amd64", "linux/arm64"])
    assert named_platforms(["--insecure", *options]) == ("linux/amd64", "linux/arm64")
    assert named_platforms(["--insecure"]) == ("linux/amd64",)


@pytest.mark.parametrize(("before", "now"), [(None, True), (False, True), (True, False)])
def test_pushes_again_when_a_registry_changes_its_tls_setting(
    before: bool | None, now: bool
) -> None:
    common = {"registry": "r", "base": "b", "inputs": "i"}
    olds = common if before is None else {**common, "insecure": before}
    assert Builder().diff("", olds, {**common, "insecure": now}).changes
    assert not Builder().diff("", common, {**common, "insecure": False}).changes


def test_makes_the_image_readable_for_non_root_users(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir(mode=0o700)
    (tmp_path / "site/module.py").touch(mode=0o600)
    (tmp_path / "hook").touch(mode=0o700)
    readable_by_all(tmp_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"site": 0o755, "module.py": 0o644, "hook": 0o755}


def test_carries_every_module_that_its_programs_import() -> None:
    carried = {name for name in build._inputs() if build._is_of_the_agent(name)}
    imported = {name: sorted(imports(PACKAGE / name)) for name in carried if name.endswith(".py")}
    assert len(imported) > 100
    missing = {
        f"{name} imports {module}"
        for name, modules in imported.items()
        for module in modules
        if not {f"{module}.py", f"{module}/__init__.py"} & carried
    }
    assert missing == set()


def imports(source: Path) -> set[str]:
    """Return the paths below the package of the modules that a file imports anywhere."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    own = (module.split(".")[1:] for module in modules if module.startswith("divvy."))
    return {"/".join(parts) for parts in own}
