"""What a program does, or declares, that no run may trip over."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import time
from collections.abc import Iterator

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial

A = 'cm("a", metadata={"name": "a"}, data={"x": E("X", "1")})\n'


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ('pulumi.StackReference("organization/o/dev")\n', "the resource StackReference"),
        ('k8s.helm.v3.Release("r", chart="c")\n', "the kind Release (helm.sh/v3)"),
        ('k8s.yaml.ConfigFile("f", file="absent.yaml")\n', "ConfigFile (yaml)"),
        ('k8s.yaml.v2.ConfigFile("f", file="absent.yaml")\n', "the kind ConfigFile (yaml/v2)"),
        ('cm("b", opts=R(import_="x/y"))\n', "the option import_"),
        ('cm.get("b", "x/y")\n', "`.get()`"),
        ('cm("b", opts=R(replace_on_changes=["data"]))\n', "the option replace_on_changes"),
        ('cm("b", opts=R(retain_on_delete=True))\n', "the option retain_on_delete"),
        ('cm("b", opts=R(replacement_trigger="1"))\n', "the option replacement_trigger"),
        ('cm("b", opts=R(deleted_with=a))\n', "the option deleted_with"),
        (
            'cm("b", opts=R(hooks=pulumi.ResourceHookBinding(before_create=['
            'pulumi.ResourceHook("h", lambda args: None)])))\n',
            "hooks",
        ),
        ('cm("b", opts=R(transforms=[lambda args: None]))\n', "transforms"),
        ('Pod("p", spec={"containers": []})\n', "the kind Pod (core/v1)"),
        ('k8s.batch.v1.Job("j", spec={"template": {}})\n', "the kind Job (batch/v1)"),
        ('k8s.apps.v1.StatefulSet("s", spec={})\n', "the kind StatefulSet (apps/v1)"),
        ('k8s.core.v1.ConfigMapPatch("p", data={"x": "1"})\n', "the kind ConfigMapPatch"),
        (
            'cm("b", metadata={"annotations": {"pulumi.com/waitFor": "x"}})\n',
            "the annotation pulumi.com/waitFor",
        ),
        ('k8s.Provider("p", render_yaml_to_directory="o")\n', "renderYamlToDirectory"),
        ('cm("b", metadata={"generate_name": "gen-"})\n', "metadata.generateName"),
    ],
)
@scenario(
    "What is outside of the tables above",
    "supported",
    "refused",
    "before anything is changed; each by its name",
)
def test_refuses_a_program_before_anything_is_changed(
    trial: Trial, program: str, name: str
) -> None:
    (trial.folder / "absent.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")
    trial.write(A.replace("cm(", "a = cm("))
    trial.up()
    uid, checkpoint = trial.uid("a"), trial.checkpoint.read_bytes()
    trial.write(A.replace("cm(", "a = cm(") + 'cm("new", metadata={"name": "new"})\n' + program)
    for output in (trial.preview(X="2", expect=1), trial.up(X="2", expect=1)):
        assert name in output
        if "generateName" not in name:
            assert "pulumi up" in output or "divvy's embedded engine does not support" in output
    assert (trial.names(), trial.uid("a")) == ({"a"}, uid)
    assert trial.checkpoint.read_bytes() == checkpoint
    assert not trial.journal.exists()


@pytest.mark.lab
def test_names_everything_that_it_refuses_at_once(trial: Trial) -> None:
    trial.write('Pod("p")\ncm("b", opts=R(retain_on_delete=True))\n')
    output = trial.preview(expect=1)
    assert "p: the kind Pod" in output
    assert "b: the option retain_on_delete" in output
    assert not (trial.folder / ".pulumi").exists()
    trial.up(expect=1)
    assert not trial.checkpoint.exists()


@pytest.mark.lab
def test_refuses_inside_an_apply_before_that_resource_is_touched(trial: Trial) -> None:
    trial.write(
        'a = cm("a", metadata={"name": "a"})\n'
        'a.id.apply(lambda i: Pod("late", metadata={"name": "late"}, spec={"containers": []}))\n'
    )
    assert "the kind Pod (core/v1) is not supported" in trial.up(expect=1)
    assert trial.names("pods") == set()


@scenario("Two resources with the same alias", "an error that names both", "refused")
def test_refuses_two_resources_with_one_alias(trial: Trial) -> None:
    trial.write('cm("z", metadata={"name": "z"})\n')
    trial.up()
    uid = trial.uid("z")
    trial.write(
        'O = R(aliases=[Alias(name="z")])\n'
        'for n in ("x1", "x2"):\n    cm(n, metadata={"name": n}, opts=O)\n'
    )
    for output in (trial.preview(expect=1), trial.up(expect=1)):
        assert "x2 and x1 have the same alias" in output
    assert (trial.names(), trial.uid("z")) == ({"z"}, uid)


@scenario("A program, or its child, that reads standard input", "reads nothing", "equal")
def test_gives_a_program_an_empty_standard_input(trial: Trial) -> None:
    trial.write(
        "import subprocess, sys\n"
        'assert sys.stdin.read() == ""\n'
        'assert subprocess.run(["cat"], capture_output=True, timeout=20).stdout == b""\n' + A
    )
    trial.up()
    assert trial.names() == {"a"}


@pytest.mark.lab
def test_gives_a_dynamic_provider_an_empty_standard_input(trial: Trial) -> None:
    trial.write(
        "from pulumi.dynamic import CreateResult, Resource, ResourceProvider\n"
        "class P(ResourceProvider):\n"
        "    def create(self, props):\n"
        "        import sys\n"
        '        return CreateResult("id1", {"read": sys.stdin.read()})\n'
        "class D(Resource):\n"
        "    read: Output[str]\n"
        'pulumi.export("read", D(P(), "d", {"read": None}).read)\n'
    )
    trial.up()
    assert '""' in trial.run("stack", "output")


@scenario("`os._exit(0)` in the middle of a program", "a failed run; nothing deleted", "equal")
def test_reports_a_program_that_exits_early_with_success_as_failed(trial: Trial) -> None:
    trial.write(A)
    trial.up()
    trial.write('import os\nif E("LATE"):\n    cm("b", metadata={"name": "b"}).id.apply('
                "lambda i: os._exit(0))\nelse:\n    os._exit(0)\n")  # fmt: skip
    for late in ("", "1"):
        output = trial.up(LATE=late, expect=1)
        assert "before it was done (os._exit" in output
        assert "a" in trial.names()


WAITING = (
    'cm("a", metadata={"name": "a"})\n'
    'k8s.apps.v1.DaemonSet("d", metadata={"name": "d"}, spec={"selector": {"match_labels": {\n'
    '  "a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [\n'
    '  {"name": "c", "image": "i"}]}}})\n'
    'k8s.core.v1.Service("s", metadata={"name": "s"}, spec={"type": "LoadBalancer",\n'
    '  "ports": [{"port": 80}]})\n'
)


@pytest.fixture
def hangups() -> Iterator[None]:
    """Let SIGHUP arrive: what runs under nohup ignores it, and so do its children."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@scenario("SIGINT, SIGTERM", "the run ends cleanly", "equal")
def test_stops_waiting_on_a_signal_and_records_what_exists(
    trial: Trial, number: signal.Signals
) -> None:
    trial.write(WAITING)
    process = trial.start("up", "--yes")
    trial.wait_for(process, lambda: "s" in trial.names("services"))
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert "s" in trial.resources()
    assert not trial.journal.exists()
    trial.destroy()
    assert trial.names("services") == set()


@pytest.mark.usefixtures("hangups")
@scenario(
    "The terminal of a run is closed (SIGHUP)",
    "not observed",
    "other",
    "the run ends cleanly; with `nohup` it goes on",
)
def test_ends_a_run_in_order_when_its_terminal_closes(trial: Trial) -> None:
    trial.write(WAITING)
    terminal, end = pty.openpty()
    process = trial.start("up", "--yes", terminal=end)
    os.close(end)
    trial.wait_for(process, lambda: "s" in trial.names("services"))
    os.close(terminal)
    # The shell and the kernel send one each.
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 130
    assert "s" in trial.resources()
    assert not trial.journal.exists()
    assert not list(trial.folder.glob(".pulumi/locks/**/*.json"))
    trial.destroy()


@pytest.mark.lab
def test_continues_a_run_under_nohup_without_its_terminal(trial: Trial) -> None:
    trial.write(WAITING)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = trial.start("up", "--yes")
    finally:
        signal.signal(signal.SIGHUP, before)
    trial.wait_for(process, lambda: "s" in trial.names("services"))
    process.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    trial.destroy()


@scenario(
    "`preview` beside a running `up`",
    "shows what it finds",
    "other",
    "shows what it finds, and first says who is changing the stack",
)
def test_previews_with_a_note_while_another_run_changes_the_stack(trial: Trial) -> None:
    trial.write(WAITING)
    process = trial.start("up", "--yes")
    trial.wait_for(process, lambda: "s" in trial.names("services"))
    output = trial.preview()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert f"process {process.pid}" in output
    assert "is changing this stack" in output
    assert "unknown" not in output
    assert "is changing this stack" not in trial.preview()
    trial.destroy()


@scenario(
    "A secret configuration value that is JSON, printed in parts",
    "not observed",
    "other",
    "`[secret]` for every string in it",
)
def test_hides_parts_of_a_secret_that_is_json(trial: Trial) -> None:
    trial.configure("config: {}\n")
    trial.run("config", "set", "account", '{"user": "root", "key": "hunter3"}', "--secret")
    trial.write(
        'account = pulumi.Config().require_object("account")\n'
        'print("key:", account["key"])\nraise ValueError(account["key"])\n'
    )
    output = trial.up(expect=1)
    assert "key: [secret]" in output
    assert "hunter3" not in output


@scenario(
    "A namespace by its literal name, created in the same run without a dependency",
    "tried again",
    "equal",
)
def test_waits_for_a_namespace_of_the_same_run(trial: Trial) -> None:
    trial.write(
        "from pulumi.dynamic import CreateResult, Resource, ResourceProvider\n"
        "class P(ResourceProvider):\n"
        "    def create(self, props):\n"
        "        import time\n"
        "        time.sleep(3)\n"
        '        return CreateResult("id1", {})\n'
        "class D(Resource):\n"
        "    def __init__(self, name):\n"
        "        super().__init__(P(), name, {})\n"
        'cm("c", metadata={"name": "c", "namespace": E("N")})\n'
        'k8s.core.v1.Namespace("n", metadata={"name": E("N")}, opts=R(depends_on=[D("d")]))\n'
    )
    name = f"{trial.namespace}-n"
    trial.up(N=name)
    assert trial.cluster.names("configmaps", name) == {"c"}
    trial.destroy(N=name)


@pytest.mark.lab
def test_names_the_kind_that_the_cluster_does_not_have(trial: Trial) -> None:
    trial.write(
        'k8s.apiextensions.CustomResource("m", api_version="monitoring.coreos.com/v1",\n'
        '  kind="ServiceMonitor", metadata={"name": "m"}, spec={})\n'
    )
    for output in (trial.preview(expect=1), trial.up(expect=1)):
        assert "the cluster has no ServiceMonitor in monitoring.coreos.com/v1" in output
