"""divvy validate: check stack files."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.options import named_stack, stack_names
from divvy.deploy.claims_checks import check_floor
from divvy.deploy.enforcement_check import warn_of_weaker_rungs
from divvy.errors import fail
from divvy.model import Cluster
from divvy.model.phrases import plural
from divvy.model.stack_policy import Policy
from divvy.plan.review.policy_violations import violations
from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_stack
from divvy.stack.keys import CLUSTER
from divvy.stack.policy_file import read_policy
from divvy.stack.sections import InvalidStack, read_cluster


def validate(
    stacks: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--stack",
            help="Stack to check (repeatable), or that of PULUMI_STACK.",
            autocompletion=stack_names,
        ),
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", help="Stack file to check (repeatable).")
    ] = None,
    policy_file: Annotated[
        Path | None,
        typer.Option("--policy", help="A policy file: what stack files may do."),
    ] = None,
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Also compare with what each stack's cluster can serve.")
    ] = False,
) -> None:
    """Check stack files and report every error at once; nothing is touched."""
    wanted: list[tuple[str | None, Path | None]] = [(stack, None) for stack in stacks or ()]
    wanted += [(None, file) for file in files or ()]
    if not wanted and (stack := named_stack(None, None)):
        wanted.append((stack, None))
    if not wanted:
        fail("name a stack with -s <stack>, or a file with --file FILE")
    policy = read_policy(policy_file) if policy_file else None
    errors = []
    for stack, path in wanted:
        try:
            source = read_stack(stack, path)
            cluster = read_cluster(source)
            if policy:
                _check_policy(policy, source, cluster)
        except StackError as error:
            errors.append(str(error))
        else:
            pools = plural(len(cluster.pools), "pool")
            profiles = plural(len(cluster.profiles), "profile")
            typer.echo(f"{source.source}: valid ({pools}, {profiles})")
            if live:
                check_floor(cluster)
                warn_of_weaker_rungs(cluster)
    if errors:
        fail("\n".join(errors))


def _check_policy(policy: Policy, source: StackFile, cluster: Cluster) -> None:
    """Refuse what a policy does not allow, and warn of what its advisory rules do not."""
    refused = []
    for violation in violations(policy, cluster, datetime.now(UTC)):
        problem = violation.problem
        if violation.rule in policy.advisory:
            line = source.line(("config", CLUSTER, *problem.keys))
            typer.echo(f"warning: {source.source}: line {line}: {problem}", err=True)
        else:
            refused.append(problem)
    if refused:
        raise InvalidStack(source, CLUSTER, refused)
