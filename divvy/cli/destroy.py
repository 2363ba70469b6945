"""divvy destroy: delete what a stack has in the cluster."""

from divvy.cli.confirm import confirm
from divvy.cli.options import Stack, Yes
from divvy.cli.runs import check_claims_go, conclude, watching
from divvy.cli.target import target_of
from divvy.engine import operations


def destroy(stack: Stack, *, yes: Yes = False) -> None:
    """Delete everything that the stack has in the cluster; the stack itself stays."""
    chosen = target_of(stack)
    check_claims_go(chosen)
    confirm(yes=yes, question=f"Delete everything of the stack {stack}?")
    summary = operations.destroy(chosen, watching(preview=False))
    conclude(summary, preview=False, diff=False)
