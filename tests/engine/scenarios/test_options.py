"""Options of resources, providers, projects and commands: honoured, or refused by name."""

from __future__ import annotations

import json

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial


@pytest.mark.parametrize(
    "option",
    ['render_yaml_to_directory="out"', 'cluster_identifier="x"', "enable_server_side_apply=False"],
)
@scenario(
    "Render mode and other provider options than those of this page",
    "honoured",
    "refused",
    "the option is named",
)
def test_refuses_unknown_provider_options(trial: Trial, option: str) -> None:
    trial.write(
        f'p = k8s.Provider("p", {option})\ncm("a", metadata={{"name": "a"}}, opts=R(provider=p))\n'
    )
    assert "is not supported" in trial.up(expect=1)
    assert trial.names() == set()


@scenario(
    "`protect` taken off, or an output changed, and nothing else",
    "recorded by a `same` step",
    "equal",
)
def test_records_changed_options_and_outputs_alone(trial: Trial) -> None:
    trial.write(
        'cm("a", metadata={"name": "a"}, opts=R(protect=bool(E("P"))))\n'
        'pulumi.export("o", E("O", "1"))\n'
    )
    trial.up(P="1")
    assert "is protected" in trial.destroy(expect=1)
    trial.answered("up", answer="y", P="1", O="2")
    assert '"2"' in trial.run("stack", "output")
    trial.answered("up", answer="y", O="2")
    assert "Record" not in trial.answered("up", answer="n", O="2")
    trial.destroy()
    assert trial.names() == set()


IGNORED = """k8s.apps.v1.Deployment("d", metadata={"name": "d", "annotations": {"a.b/c": "1"}},
  spec={"replicas": 0, "min_ready_seconds": int(E("V", "1")),
        "selector": {"match_labels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
                     "spec": {"containers": [{"name": "c", "image": "i:1"}]}}},
  opts=R(ignore_changes=[E("IG")], custom_timeouts=CustomTimeouts(create="1s", update="1s")))
"""


@pytest.mark.parametrize(
    ("ignored", "patch", "path"),
    [
        ("spec.replicas", {"spec": {"replicas": 2}}, "{.spec.replicas}"),
        (
            "spec.template.spec.containers[0].image",
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "o:9"}]}}}},
            "{.spec.template.spec.containers[0].image}",
        ),
        (
            'metadata.annotations["a.b/c"]',
            {"metadata": {"annotations": {"a.b/c": "o"}}},
            r"{.metadata.annotations.a\.b/c}",
        ),
    ],
)
@scenario(
    "An ignored path is changed outside; then another field is changed",
    "left alone; then kept for plain paths, a conflict or a reset for others",
    "other",
    "left alone, and kept for every path",
)
def test_leaves_ignored_paths_alone(
    trial: Trial, ignored: str, patch: dict[str, object], path: str
) -> None:
    # Without controllers a Deployment never gets ready: the annotation says not to wait.
    trial.write(IGNORED.replace('"a.b/c": "1"', '"a.b/c": "1", "pulumi.com/skipAwait": "true"'))
    place = f"--namespace={trial.namespace}"
    trial.up(IG=ignored)
    trial.cluster.kubectl(
        "patch", "deployment", "d", place, f"--patch={json.dumps(patch)}", "--field-manager=other"
    )
    outside = trial.cluster.kubectl("get", "deployment", "d", place, f"--output=jsonpath={path}")
    assert "unchanged" in trial.up(IG=ignored)
    trial.up(IG=ignored, V="2")
    after = trial.cluster.kubectl("get", "deployment", "d", place, f"--output=jsonpath={path}")
    assert after == outside in ("2", "o:9", "o")


@scenario("A property path that cannot be read", "fails", "equal")
def test_refuses_an_unreadable_property_path(trial: Trial) -> None:
    trial.write('cm("a", metadata={"name": "a"}, opts=R(ignore_changes=["data[x"]))\n')
    assert "property path 'data[x'" in trial.up(expect=1)
    assert trial.names() == set()


@pytest.mark.parametrize(
    ("command", "flag"),
    [("up", "--exclude=x"), ("up", "--continue-on-error"), ("destroy", "--target=x")],
)
@scenario(
    "`--target`, `--exclude`, `--continue-on-error`",
    "honoured",
    "refused",
    "as unknown options",
)
def test_refuses_options_that_do_not_exist(trial: Trial, command: str, flag: str) -> None:
    trial.write('cm("a", metadata={"name": "a"})\n')
    assert f"No such option: {flag.partition('=')[0]}" in trial.run(
        command, "--yes", flag, expect=1
    )
    assert trial.names() == set()


@pytest.mark.parametrize(
    "line",
    ['requiredPulumiVersion: ">=4.0.0"', "config: {dflt: {type: string, default: x}}",
     "options: {refresh: always}", "backend: {url: s3://bucket}",
     "runtime: {name: python, options: {virtualenv: other}}"],
)  # fmt: skip
@scenario(
    "`Pulumi.yaml`: required version, config schema, options, other backends, a missing virtualenv",
    "honoured",
    "refused",
    "the key is named",
)
def test_refuses_project_keys_that_change_meaning(trial: Trial, line: str) -> None:
    text = f"name: trial\n{line}\n" + ("" if line.startswith("runtime") else "runtime: python\n")
    (trial.folder / "Pulumi.yaml").write_text(text)
    trial.write('cm("a", metadata={"name": "a"})\n')
    output = trial.up(expect=1)
    assert "not supported" in output or "keeps state in files" in output or "virtualenv" in output
    assert trial.names() == set()


@scenario("A typing mistake in the command line", "exit code 1", "equal")
def test_exits_1_on_a_usage_error_not_with_the_code_of_changes(trial: Trial) -> None:
    trial.write("")
    trial.preview("--typo", expect=1)


@scenario(
    "`transformations` of a resource, a component and the stack", "applied by the SDK", "equal"
)
def test_applies_transformations(trial: Trial) -> None:
    trial.write(
        "T = pulumi.ResourceTransformationResult\n"
        "def labelled(args):\n"
        '    if args.type_ == "kubernetes:core/v1:ConfigMap":\n'
        '        metadata = {**args.props["metadata"], "labels": {"by": "stack"}}\n'
        '        return T({**args.props, "metadata": metadata}, args.opts)\n'
        "pulumi.runtime.register_stack_transformation(labelled)\n"
        "def given(text):\n"
        '    return lambda args: T({**args.props, "data": {"x": text}}, args.opts) if '
        'args.type_ == "kubernetes:core/v1:ConfigMap" else None\n'
        'by = R(transformations=[given("component")])\n'
        'c = pulumi.ComponentResource("t:i:C", "c", None, by)\n'
        'cm("a", metadata={"name": "a"}, opts=R(parent=c))\n'
        'cm("b", metadata={"name": "b"}, opts=R(transformations=[given("own")]))\n'
    )
    trial.up()
    for name, text in (("a", "component"), ("b", "own")):
        live = trial.cluster.get("configmap", name, f"--namespace={trial.namespace}")
        assert (live["data"], live["metadata"]["labels"]) == ({"x": text}, {"by": "stack"})
    assert "5 unchanged" in trial.up()
    trial.destroy()


@scenario(
    "`providers` of a component, nested; the provider renamed; its namespace changed",
    "inherited; nothing touched; replaced in the new namespace",
    "equal",
)
def test_passes_a_components_providers_to_its_children(trial: Trial) -> None:
    other = f"{trial.namespace}-x"
    trial.cluster.kubectl("create", "namespace", other)
    trial.write(
        'p = k8s.Provider(E("P", "p"), namespace=E("N"))\n'
        'c = pulumi.ComponentResource("t:i:C", "c", None, R(providers=[p]))\n'
        'd = pulumi.ComponentResource("t:i:C", "d", None, R(parent=c))\n'
        'cm("a", metadata={"name": "a"}, opts=R(parent=d))\n'
    )
    trial.up(N=other)
    before = trial.cluster.uid("configmap", "a", other)
    assert before is not None
    trial.up(N=other, P="q")
    assert trial.cluster.uid("configmap", "a", other) == before
    trial.up(N=trial.namespace, P="q")
    assert trial.names() == {"a"}
    assert trial.cluster.names("configmaps", other) == set()
    trial.destroy(N=trial.namespace, P="q")
    trial.cluster.kubectl("delete", "namespace", other, "--wait=false")
