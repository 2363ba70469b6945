"""The divvy command: one typer app, one module per command."""

import gc

import typer

from divvy.cli import chart, deploy, diff, imports, lab, plan, schema, stacks, validate, verify

app = typer.Typer(
    name="divvy",
    help="GPU sharing as code for Kubernetes: predict, provision and prove.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

lab.register(app)
deploy.register(app)
stacks.register(app)
plan.register(app)
diff.register(app)
validate.register(app)
schema.register(app)
imports.register(app)
chart.register(app)
verify.register(app)


def main() -> None:
    """Run the command line."""
    # Most commands are short and keep what they make: looking for garbage takes a tenth of them.
    gc.set_threshold(100_000)
    try:
        app()
    finally:
        gc.freeze()  # … and the search at the end of the process another tenth
