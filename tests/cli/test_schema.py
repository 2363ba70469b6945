"""divvy schema: the examples are valid by it, and keys that nothing reads are not."""

import json

import jsonschema
import yaml

from tests.divvy_command import invoke
from tests.plan.stacks import FOLDER


def test_describes_the_examples_by_its_schema():
    result = invoke("schema")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["$schema"].endswith("2020-12/schema")
    validator = jsonschema.Draft202012Validator(document)
    for path in FOLDER.glob("Pulumi.*.yaml"):
        validator.validate(yaml.safe_load(path.read_text()))
    # What the section of the lab holds is for divvy-lab to check.
    validator.validate({"config": {"divvy:lab": {"nodes": [{"name": "a", "models": "T4"}]}}})
    wrong = {"config": {"divvy:cluster": {"profiles": {}, "pools": {}, "node": {}}}}
    assert "additionalProperties" in [error.validator for error in validator.iter_errors(wrong)]
    assert not validator.is_valid({"config": {}})


def test_schema_refuses_keys_that_nothing_reads():
    validator = jsonschema.Draft202012Validator(json.loads(invoke("schema").stdout))
    right = {"config": {"divvy:lab": {"nodes": [{"name": "a"}]}, "aws:region": "x", "owner": "me"}}
    validator.validate(right | {"encryptionsalt": "v1"})
    for wrong in (
        right | {"pools": {}},
        {"config": right["config"] | {"divvy:clutser": {}}},
        {"config": right["config"] | {"pools": {}}},
    ):
        assert not validator.is_valid(wrong), wrong
