"""Secrets: sealed in every file, never shown."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.engine.scenario import scenario
from tests.engine.trial import Trial

SECRETS = """sec = Output.secret
Secret("d", metadata={"name": "sd"}, data={"password": sec("aHVudGVyMg=="), "open": "b3Blbg=="})
Secret("sd", metadata={"name": "ssd"}, string_data={"password": sec("hunter2")})
Secret("plain", metadata={"name": "splain"}, string_data={"password": "hunter2"})
cm("cm", metadata={"name": "scm"}, data={"x": sec("hunter2"), "y": "open"})
pulumi.export("data", sec("hunter2"))
"""
# The value and its base64, in whatever quotes.
CLEAR = ("hunter2", "aHVudGVyMg")


def clear(text: str) -> bool:
    return any(word in text for word in CLEAR)


@scenario(
    "Secrets: `data`, `stringData`, marked or not, in a ConfigMap, in an output",
    "encrypted after every operation",
    "equal",
)
def test_encrypts_secrets_after_every_operation(trial: Trial) -> None:
    trial.write(SECRETS)
    output = trial.up("--diff")
    for operation in ("up", "refresh", "up"):
        assert not clear(trial.files()), operation
        output += getattr(trial, operation)()
    assert not clear(trial.files())
    assert not clear(trial.preview("--json"))
    assert not clear(trial.run("stack", "export"))
    assert not clear(output)
    assert trial.checkpoint.stat().st_mode & 0o777 == 0o600
    trial.destroy()
    assert trial.names("secrets") == set()


@scenario(
    "Drift of a Secret set by `stringData`; `refresh`, then `up`",
    "with `--refresh` only: replaced",
    "other",
    "seen by `up` itself, and repaired in place if the provider allows it",
)
def test_repairs_a_secret_edited_outside_in_place(trial: Trial) -> None:
    trial.write(
        'p = k8s.Provider("p", kubeconfig=E("KUBECONFIG"), enable_secret_mutable=True)\n'
        'Secret("s", metadata={"name": "s"},\n'
        '       string_data={"p": "one-value"}, opts=R(provider=p))\n'
    )
    trial.up()
    uid = trial.uid("s", "secret")
    patch = json.dumps({"stringData": {"p": "outside"}})
    place = f"--namespace={trial.namespace}"
    trial.cluster.kubectl("patch", "secret", "s", place, f"--patch={patch}")
    assert "data.p" in trial.preview(expect=2)
    trial.refresh(expect=2)
    assert "updated (data.p" in trial.up()
    assert trial.uid("s", "secret") == uid
    assert "3 unchanged" in trial.up()


@pytest.mark.lab
def test_encrypts_kubectls_copy_of_a_secret(trial: Trial) -> None:
    trial.write('cm("a", metadata={"name": "a"}, data={"x": Output.secret("hunter2")})\n')
    trial.up()
    copied = 'kubectl.kubernetes.io/last-applied-configuration={"data":{"x":"hunter2"}}'
    trial.cluster.kubectl("annotate", "configmap", "a", f"--namespace={trial.namespace}", copied)
    for operation in (trial.refresh, trial.up):
        operation()
        assert not clear(trial.files())


@pytest.mark.lab
def test_hides_a_secret_in_a_refusal_of_the_api_server(trial: Trial) -> None:
    trial.write('cm("a", metadata={"name": "a", "labels": {"l": Output.secret("hunter2 !")}})\n')
    for output in (trial.preview(expect=1), trial.up(expect=1)):
        assert "[secret]" in output
        assert not clear(output)
    assert not clear(trial.files())


@scenario(
    "Nested secrets of the configuration, printed and logged",
    "opened for the program; `[secret]` wherever shown",
    "equal",
)
def test_decrypts_configuration_secrets_and_never_shows_them(trial: Trial) -> None:
    trial.configure("config: {}\n")
    trial.run("config", "set", "top", "hunter3", "--secret")
    document = yaml.safe_load((trial.folder / "Pulumi.dev.yaml").read_text())
    sealed = document["config"]["trial:top"]
    document["config"]["trial:obj"] = {"password": sealed, "user": "bob"}
    trial.configure(yaml.safe_dump(document))
    trial.write(
        'obj = pulumi.Config().require_object("obj")\n'
        'assert obj["password"] == "hunter" + "3", obj\n'
        'print("plain:", obj)\npulumi.log.info("logged " + obj["password"])\n'
        'raise ValueError("x-" + obj["password"])\n'
    )
    output = trial.up(expect=1)
    assert "'user': 'bob'" in output
    assert "logged [secret]" in output
    assert "x-[secret]" in output
    assert "hunter3" not in output
