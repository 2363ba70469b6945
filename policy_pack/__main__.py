"""The rules of policy.yaml as a policy pack: see PulumiPolicy.yaml."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

from divvy.model import InvalidCluster, NewerSchema, parse_canonical
from divvy.model.contract import CONFIG_KEY, CONFIG_MAP, Component, component_of
from divvy.model.field_docs import field_doc
from divvy.model.stack_policy import Policy, RuleName
from divvy.plan.policy_violations import violations
from divvy.stack.errors import StackError
from divvy.stack.policy_file import read_policy

_CONFIG_MAPS = ("kubernetes:core/v1:ConfigMap", "kubernetes:core/v1:ConfigMapPatch")


def validate(
    policy: Policy, rule: RuleName, args: ResourceValidationArgs, report: ReportViolation
) -> None:
    """Report what a rule does not allow in a cluster.

    The agents' ConfigMap holds the whole cluster, whatever language the program is written in.
    They read it by its name: a program may have taken its labels away.
    """
    if args.resource_type not in _CONFIG_MAPS:
        return
    metadata, data = args.props.get("metadata") or {}, args.props.get("data") or {}
    labelled = component_of({"metadata": metadata}) == Component.CONFIGURATION
    if not labelled and (metadata.get("name") != CONFIG_MAP or CONFIG_KEY not in data):
        return
    if not isinstance(data.get(CONFIG_KEY), str):
        report(f"the agents' configuration has no {CONFIG_KEY} that is text")
        return
    try:
        cluster = parse_canonical(data[CONFIG_KEY])
    except (InvalidCluster, NewerSchema) as error:
        report(str(error))
        return
    for violation in violations(policy, cluster, datetime.now(UTC)):
        if violation.rule == rule:
            problem = violation.problem
            report(f"{problem.path}: {problem.reason}\n    {problem.remedy}")


def pulumi_policies(policy: Policy) -> Iterator[ResourceValidationPolicy]:
    """Yield the rules that a policy has, each as a policy of Pulumi's."""
    fields = {field.alias: name for name, field in Policy.model_fields.items()}
    for rule in policy.rules():
        advisory = rule in policy.advisory
        yield ResourceValidationPolicy(
            name=rule,
            description=field_doc(Policy, fields[rule]),
            enforcement_level=(
                EnforcementLevel.ADVISORY if advisory else EnforcementLevel.MANDATORY
            ),
            validate=partial(validate, policy, rule),
        )


def main() -> None:
    """Serve the engine that has started this process."""
    try:
        policy = read_policy(Path(__file__).with_name("policy.yaml"))
    except StackError as error:
        sys.exit(str(error))
    PolicyPack("divvy", list(pulumi_policies(policy)))


main()
