"""A RegisterResource request as a value: what is registered inside an `apply` is checked here."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.engine.errors import NotSupported
from divvy.engine.goal import goal_from, seconds
from divvy.engine.subset import REFUSED_OPTIONS
from divvy.engine.values import to_struct
from divvy.engine.wire import resource_pb2

URN = "urn:pulumi:dev::p::kubernetes:core/v1:ConfigMap::"
Request = resource_pb2.RegisterResourceRequest
# `.get()` is a request of its own.
ASKED: dict[str, dict[str, Any]] = {
    "deleted_with": {"deletedWith": f"{URN}b"},
    "env_var_mappings": {"envVarMappings": {"A": "B"}},
    "hide_diffs": {"hideDiffs": ["data"]},
    "hooks": {"hooks": {"before_create": ["h"]}},
    "import_": {"importId": "n/a"},
    "plugin_download_url": {"pluginDownloadURL": "https://mirror.example"},
    "remote": {"remote": True},
    "replace_on_changes": {"replaceOnChanges": ["data"]},
    "replace_with": {"replace_with": [f"{URN}b"]},
    "replacement_trigger": {"replacement_trigger": {"string_value": "1"}},
    "retain_on_delete": {"retainOnDelete": True},
    "state_migrations": {"state_migrations": [{}]},
    "transforms": {"transforms": [{"token": "t"}]},
}


def request(**more: Any) -> Any:
    return Request(type="kubernetes:core/v1:ConfigMap", name="a", custom=True, **more)


@pytest.mark.parametrize("option", ASKED)
def test_refuses_each_option_by_its_name(option: str) -> None:
    with pytest.raises(NotSupported, match="the option ") as problem:
        goal_from(request(**ASKED[option]), "dev", "p")
    assert f"the option {REFUSED_OPTIONS[option]} is not supported" in str(problem.value)


def test_tests_every_option_that_a_request_can_have() -> None:
    assert {*ASKED, "id", "urn"} == {*REFUSED_OPTIONS}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"metadata": {"generateName": "a-"}}, "metadata.generateName"),
        ({"metadata": {"annotations": {"pulumi.com/waitFor": "x"}}}, "pulumi.com/waitFor"),
        ({"data": {"4dabf18193072939515e22adb298388d": "0def7320c3a5731c473e5ecbe6d01bc7"}},
         "an asset or archive"),
    ],
)  # fmt: skip
def test_refuses_inputs_by_their_name(inputs: dict[str, Any], words: str) -> None:
    with pytest.raises(NotSupported, match=words):
        goal_from(request(object=to_struct(inputs)), "dev", "p")


def test_refuses_a_path_that_cannot_be_read() -> None:
    with pytest.raises(NotSupported, match="cannot be read"):
        goal_from(request(ignoreChanges=["data[x"]), "dev", "p")


def test_reads_what_a_resource_depends_on_and_was_called() -> None:
    parent = "urn:pulumi:dev::p::x:index:C::c"
    goal = goal_from(
        request(
            parent=parent,
            dependencies=[f"{URN}z", f"{URN}y", f"{URN}z"],
            aliases=[
                {"spec": {"name": "old"}},
                {"spec": {"name": "top", "noParent": True}},
                {"urn": f"{URN}other"},
            ],
            customTimeouts={"create": "5m", "delete": "90s"},
            deleteBeforeReplaceDefined=True,
        ),
        "dev",
        "p",
    )
    below = "urn:pulumi:dev::p::x:index:C$kubernetes:core/v1:ConfigMap::"
    assert goal.urn == f"{below}a"
    assert goal.dependencies == (f"{URN}y", f"{URN}z")
    assert goal.aliases == (f"{below}old", f"{URN}top", f"{URN}other")
    assert goal.timeouts == {"create": 300, "delete": 90}
    assert goal.delete_before_replace is False
    assert goal_from(request(), "dev", "p").delete_before_replace is None


@pytest.mark.parametrize("text", ["1.2.3s", "m5", "-5m", "5d", "²s", ".s", "5 m"])
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(NotSupported, match="is not a duration: write 90s, 5m or 1h30m"):
        seconds(text)
