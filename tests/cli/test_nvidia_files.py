"""NVIDIA's configurations in files of any form: read, or named; never taken for whole GPUs."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from divvy.cli.main import app
from divvy.cli.nvidia_files import operator_profiles
from divvy.errors import CommandError
from divvy.model import parse_cluster
from divvy.model.nvidia import ImportResult
from divvy.stack.errors import StackError
from divvy.stack.yaml_documents import yaml_documents
from tests.cli.nvidia_shapes import NOTHING, SHAPES, config_map, operators_default, plugin, slices
from tests.thoroughness import at_length


def write(folder: Path, content: Any) -> Path:
    path = folder / "file.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump_all(content))
    return path


def imported(folder: Path, content: Any) -> ImportResult:
    return operator_profiles([write(folder, content)])


@pytest.mark.parametrize("shape", SHAPES)
def test_reads_configurations_wherever_they_are(tmp_path: Path, shape: str) -> None:
    content, expected = SHAPES[shape]
    assert imported(tmp_path, content).profiles == expected


@pytest.mark.parametrize("shape", NOTHING)
def test_fails_where_there_is_no_profile(tmp_path: Path, shape: str) -> None:
    content, words = NOTHING[shape]
    with pytest.raises((CommandError, StackError)) as failure:
        imported(tmp_path, content)
    assert words in str(failure.value)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["import", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_names_what_is_skipped_and_imports_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, SHAPES["config maps of a namespace"][0])
    code, text, errors = run("nvidia-config", str(path))
    assert code == 0
    assert text.startswith("# not imported: ")
    assert yaml.safe_load(text)["config"]["divvy:cluster"]["profiles"] == {"four": slices(4)}
    for name in ("data.clients.yaml", "data.entrypoint.sh", "data.ca.crt"):
        assert f"{name}: is no configuration" in errors
    assert "MIIB" not in errors


def test_ends_with_2_where_one_configuration_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [config_map(good=plugin(4), bad=plugin(1))])
    for command in ("nvidia-config", "gpu-operator"):
        code, text, errors = run(command, str(path))
        assert (code, "good" in text, "replicas: is 1; 2 or more is expected" in errors) == (
            2,
            True,
            True,
        )


def test_names_configurations_of_the_other_tool(tmp_path: Path) -> None:
    path = write(tmp_path, SHAPES["both config maps"][0])
    code, _, errors = run("nvidia-config", str(path))
    assert (code, "is mig-parted's; see import mig-parted" in errors) == (0, True)
    code, text, errors = run("mig-parted", str(path))
    assert (code, "is the device plugin's; see import nvidia-config" in errors) == (0, True)
    assert "seven:\n        mig: {1g.5gb: 7}" in text


def test_refuses_a_version_of_mig_parted_that_it_does_not_read(tmp_path: Path) -> None:
    code, _, errors = run("mig-parted", str(write(tmp_path, "version: v2\n")))
    assert (code, "version: is 'v2'; v1 is expected" in errors) == (1, True)


def test_imports_the_operators_default_into_a_stack_file_that_is_valid(tmp_path: Path) -> None:
    document = operators_default()
    assert len(yaml.safe_load(document["data"]["config.yaml"])["mig-configs"]) == 68
    result = imported(tmp_path, [document])
    named = " ".join(result.left_out)
    # Cards of which nobody publishes what their MIG profiles are.
    for lost in ("3g.95gb", "4g.95gb", "7g.189gb"):
        assert f"fits no GPU model: none has {lost}" in named
    assert "all-enabled[0]: MIG mode without instances has no counterpart" in named
    assert {"all-3g.93gb", "all-3g.72gb", "all-balanced"} <= result.profiles.keys()
    assert len(result.profiles) >= 60
    hardware = {"model": "A100-SXM4-80GB", "gpus": 8, "count": 1}
    for profile in ("all-disabled", "all-balanced", "all-1g.10gb"):
        pools = {"a": {"hardware": hardware, "profile": profile}}
        parse_cluster({"profiles": dict(result.profiles), "pools": pools})


def _entries(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*above, value), key
            yield from _entries(item, (*above, value))
    elif isinstance(value, list):
        for item in value:
            yield from _entries(item, above)


def _mutate(value: Any, chance: random.Random) -> None:
    """Change the name, the depth, the type or the version of one field, also in texts."""
    above, key = chance.choice(list(_entries(value)))
    holder = above[-1]
    item = holder[key]
    inner = yaml_documents("x", item)[0] if isinstance(item, str) and ": " in item else None
    if isinstance(inner, dict | list) and chance.random() < 0.9:
        _mutate(inner, chance)
        holder[key] = yaml.safe_dump(inner)
        return
    way = chance.choice(("rename", "raise", "lower", "type", "version"))
    if way == "rename":
        other = chance.choice((key + "s", key[:-1], key.capitalize(), "x" + key))
        if other and other not in holder:
            holder[other] = holder.pop(key)
    elif way == "raise" and len(above) > 1:
        above[-2].setdefault(key, holder.pop(key))
    elif way == "lower":
        siblings = [
            other for name, other in holder.items() if isinstance(other, dict) and name != key
        ]
        if siblings:
            chance.choice(siblings).setdefault(key, holder.pop(key))
    elif way == "version" and key in ("version", "apiVersion"):
        holder[key] = chance.choice(("v2", "v1beta1", "1", "nvidia.com/v2", ""))
    elif way == "type":
        others: list[Any] = [[item], {"value": item}, str(item)]
        if not isinstance(item, dict | list):
            others += [True, 7, "x"]
        holder[key] = chance.choice([other for other in others if type(other) is not type(item)])


@pytest.mark.parametrize("seed", range(at_length(5, 50)))
def test_loses_nothing_of_a_changed_form_in_silence(seed: int, tmp_path: Path) -> None:
    """The profiles are the same, or it fails, or it names something that it did not before."""
    chance = random.Random(seed)
    read = {
        shape: yaml_documents("x", content) if isinstance(content, str) else content
        for shape, (content, _) in SHAPES.items()
    }
    before = {shape: imported(tmp_path, content) for shape, content in read.items()}
    for _ in range(100):
        shape = chance.choice(list(read))
        changed = copy.deepcopy(read[shape])
        _mutate(changed, chance)
        try:
            after = imported(tmp_path, changed)
        except (CommandError, StackError):
            continue
        named = set(after.left_out) - set(before[shape].left_out)
        # A name that is changed is another profile's name.
        same = after.profiles == before[shape].profiles or (
            sorted(map(repr, after.profiles.values()))
            == sorted(map(repr, before[shape].profiles.values()))
        )
        assert named or same, (shape, changed, after)
