"""divvy chart as scripts use it: what it writes, and what it never overwrites."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from divvy.cli.main import app
from tests.divvy_command import run_divvy
from tests.render.chart.charts import STACKS, example
from tests.render.documents import objects_of

IMAGE = "registry.example/agent@sha256:" + "a" * 64
LAB = str(STACKS[0].parent / "Pulumi.lab.yaml")
CERN = str(STACKS[0].parent / "Pulumi.cern.yaml")
H200 = str(STACKS[0].parent / "Pulumi.h200.yaml")


def run(*arguments: object, expect: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == expect, done.output
    return done


def make(out: Path, *more: object, file: str = LAB, expect: int = 0) -> Any:
    return run("chart", "--file", file, "--image", IMAGE, "--out", out, *more, expect=expect)


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "below" / "divvy"


def test_writes_a_chart_that_is_then_up_to_date(out: Path) -> None:
    output = make(out).output
    assert output == f"{out}: {len(content(out)) - 1} files\n"
    assert {"Chart.yaml", "values.yaml", "templates/daemonset.yaml"} <= content(out).keys()
    before = content(out)
    assert make(out, "--check").output == f"{out} is up to date\n"
    make(out)
    assert content(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["divvy"]


def test_fails_the_check_of_a_stale_chart_and_names_its_files(out: Path) -> None:
    make(out)
    before = content(out)
    output = make(out, "--check", file=CERN, expect=1).output
    assert "values.yaml differs" in output
    assert "templates/daemonset.yaml" not in output
    assert content(out) == before


def test_finds_missing_and_surplus_files_in_the_check(out: Path) -> None:
    make(out)
    (out / "values.yaml").unlink()
    (out / "templates" / "mine.yaml").write_text("{}")
    output = make(out, "--check", expect=1).output
    assert "values.yaml is missing" in output
    assert "templates/mine.yaml would not be generated" in output
    assert "is not there" in make(out.with_name("none"), "--check", expect=1).output


def test_overwrites_no_files_of_others(out: Path) -> None:
    out.mkdir(parents=True)
    (out / "values.yaml").write_text("mine")
    for force in ((), ("--force",)):
        assert "was not generated" in make(out, *force, expect=1).output
    make(out.with_name("ours"))
    (out.with_name("ours") / "notes.md").write_text("mine")
    output = make(out.with_name("ours"), "--force", expect=1).output
    assert "has files that were not generated: notes.md" in output
    assert content(out) == {"values.yaml": b"mine"}


def test_overwrites_edits_only_by_force(out: Path) -> None:
    make(out)
    fresh = content(out)
    (out / "values.yaml").write_text("edited")
    assert "edited since it was generated: values.yaml" in make(out, expect=1).output
    assert (out / "values.yaml").read_text() == "edited"
    make(out, "--force")
    assert content(out) == fresh


def test_refuses_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file" in make(tmp_path / "file", expect=1).output
    assert "cannot write" in make(tmp_path / "file" / "below", expect=1).output
    assert (tmp_path / "file").read_text() == "mine"


def test_refuses_to_replace_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "you are in it" in make(Path(), expect=1).output
    assert not content(tmp_path)


def test_removes_files_that_are_no_longer_generated(out: Path) -> None:
    make(out)
    listed = (out / ".divvy-files").read_text()
    old = "templates/old.yaml"
    (out / old).write_text("old\n")
    digest = subprocess.run(["sha256sum", old], cwd=out, capture_output=True, text=True, check=True)
    (out / ".divvy-files").write_text(listed + digest.stdout)
    make(out)
    assert old not in content(out)


def test_leaves_the_folder_as_it_was_when_a_write_fails(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(out)
    before = content(out)
    real = Path.write_text

    def full(path: Path, *arguments: Any, **more: Any) -> int:
        if path.name == "values.yaml":
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, "write_text", full)
    assert "No space left" in make(out, file=CERN, expect=1).output
    assert content(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["divvy"]


def test_writes_the_same_archive_each_time(tmp_path: Path) -> None:
    make(tmp_path / "a", "--package", "--chart-version", "1.2.3")
    make(tmp_path / "b", "--package", "--chart-version", "1.2.3")
    (archive,) = (tmp_path / "a").iterdir()
    assert archive.name == "divvy-1.2.3.tgz"
    assert archive.read_bytes() == (tmp_path / "b" / archive.name).read_bytes()
    make(tmp_path / "a", "--package", "--chart-version", "1.2.3", "--check")
    make(tmp_path / "a", "--package", "--chart-version", "1.2.4", "--check", expect=1)


def test_writes_the_same_bytes_from_another_process(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        where = ("--file", LAB, "--image", IMAGE, "--out", tmp_path / seed)
        run_divvy("chart", *where, environment={"PYTHONHASHSEED": seed})
    assert content(tmp_path / "1") == content(tmp_path / "2")


def test_writes_the_programs_objects_as_manifests() -> None:
    image = f"10.123.0.1:5000/divvy/agent@sha256:{'a' * 64}"
    manifests = run("chart", "--file", LAB, "--format", "manifests", "--image", image).output
    assert list(yaml.safe_load_all(manifests)) == json.loads(
        json.dumps(objects_of(example("lab"), image))
    )


def test_writes_manifests_into_a_folder(out: Path) -> None:
    make(out, "--format", "manifests")
    assert content(out).keys() == {".divvy-files", "divvy.yaml"}
    make(out, "--format", "manifests", "--check")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--file", LAB), "name a folder with --out DIR"),
        (("--file", LAB, "--check"), "name a folder with --out DIR"),
        (
            ("--file", LAB, "--out", "x", "--image", "agent:latest"),
            "an image by digest is expected",
        ),
        (("--file", LAB, "--format", "manifests"), "the agent's image is not known"),
        (("--file", LAB, "--format", "manifests", "--package"), "belong to the chart"),
        (("--file", LAB, "--out", "x", "--pool", "research"), "belong to --operator"),
        (("--file", H200, "--out", "x", "--build"), "--build needs plugin.image.registry"),
        (("--file", LAB, "--out", "x", "--build", "--check"), "--check changes nothing"),
        (("--file", LAB, "--operator", "--out", "x", "--pool", "no"), "there is no pool no"),
        (("--file", CERN, "--operator", "--out", "x", "--without", "change"), "nothing here"),
        (("--file", "none.yaml", "--out", "x"), "cannot read none.yaml"),
    ],
)
def test_refuses_wrong_arguments_with_one_error(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("chart", *arguments, expect=1)
    assert message in done.output
    assert done.output.count("error:") == 1
    assert not list(tmp_path.iterdir())


CLAIMS_FOR_ARM64 = {
    "profiles": {"by-size": {"claims": {"shares": {}}}},
    "pools": {"all": {"profile": "by-size"}},
    "plugin": {"image": {"registry": "r.example", "base": "b", "platforms": ["linux/arm64"]}},
}


@pytest.mark.parametrize(
    ("image", "placed"),
    [
        (f"r.example/divvy/agent@sha256:{'a' * 64}", True),
        (f"r.example/mirror/agent@sha256:{'a' * 64}", False),
        (None, False),
    ],
)
def test_keeps_controllers_on_the_platforms_of_the_image_that_is_built(
    image: str | None, placed: bool, out: Path, tmp_path: Path
) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(json.dumps({"config": {"divvy:cluster": CLAIMS_FOR_ARM64}}))
    given = ("--file", file, *(("--image", image) if image else ()))
    run("chart", *given, "--out", out)
    values = yaml.safe_load((out / "values.yaml").read_text())
    assert ("arm64" in str(values["claimTemplates"]["affinity"])) is placed
    if image:
        written = run("chart", *given, "--format", "manifests").output
        assert ("kubernetes.io/arch" in written) is placed


def test_says_what_to_set_without_an_image(out: Path) -> None:
    output = run("chart", "--file", LAB, "--out", out).output
    assert "set image.repository and image.digest when installing" in output


def test_writes_nothing_that_the_operator_cannot_express(out: Path) -> None:
    output = make(out, "--operator", file=LAB, expect=1).output
    assert "6 things the GPU Operator cannot do" in output
    assert "timeSlicing.memoryLimit" in output
    assert "GPU 2 shared by 6, GPU 3 unshared" in output
    assert "timeSlicing.compute" in output
    assert not out.exists()


def test_omits_optional_parts_when_told(out: Path) -> None:
    output = make(out, "--operator", file=H200, expect=1).output
    assert "--without change does without it; --without devices does without it" in output
    output = make(
        out, "--operator", "--without", "change", "--without", "devices", file=H200
    ).output
    assert "note: left out: cluster: devices: rdma/hca" in output
    assert {"values.yaml", "node-labels.yaml", "nvidia-mig-config.yaml"} <= content(out).keys()


def test_imports_what_was_written_for_the_operator(out: Path) -> None:
    pools = ("whole", "slice-4", "slice-10", "mixed-layout", "seven-mixed")
    make(out, "--operator", *(word for pool in pools for word in ("--pool", pool)), file=CERN)
    files = [out / name for name in content(out) if name.endswith(("config.yaml", "values.yaml"))]
    values = run("import", "gpu-operator", *files).output
    profiles = yaml.safe_load(values)["config"]["divvy:cluster"]["profiles"]
    shared = {"renameByDefault": True, "failRequestsGreaterThanOne": True}
    assert profiles == {
        "disabled": {},
        "slice-4": {"timeSlicing": {"replicas": 4, **shared}},
        "slice-10": {"timeSlicing": {"replicas": 10, **shared}},
        "2x2g.10gb-3x1g.5gb": {"mig": {"2g.10gb": 2, "1g.5gb": 3}},
        "7x1g.5gb": {"mig": {"1g.5gb": 7}},
    }


def test_reports_what_is_wrong_in_the_operators_files(tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text("version: v1\nmig-configs: {}\n")
    output = run("import", "gpu-operator", tmp_path / "mig.yaml", expect=1).output
    assert "mig-configs: is empty; at least one entry is expected" in output
    (tmp_path / "values.yaml").write_text("mig: {strategy: double}\n")
    output = run("import", "gpu-operator", tmp_path / "values.yaml", expect=1).output
    assert "mig.strategy: is 'double'" in output
