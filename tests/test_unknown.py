"""Unknown is never nothing: no handler takes whatever went wrong for an answer."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTED = subprocess.run(
    ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
)
# These name no cause: with them "it does not answer" and "it answers no" are the same.
BROAD = {"BaseException", "Exception", "KubeError", "NVMLError"}
# What answers "no" or "none" for an error of the driver of which no cause is known.
ACCEPTED = {
    # A prepared claim is as it is known: an API server that is away holds up no container.
    "divvy/agent/claims/preparation.py": {"_reload_allocation"},
    "divvy/agent/nvml/calls.py": {
        "_brand",  # "unknown" is its name
        "_recovery",  # the driver asks for nothing: whether a GPU answers, its facts tell
        "_numa",  # None is "not known"
        "links",  # the score of the farthest: what is preferred, and never what is allocated
        "utilisation",  # a figure that is absent
        "_readings",  # a figure that is absent
    },
    "divvy/agent/nvml/child.py": {"_free"},  # with a driver that is gone, so are its events
    "divvy/deploy/waiting.py": {"_last_warning", "_log_tail"},  # words beside what is missing
    "conformance/cluster/api.py": {"log"},  # "": nothing is printed yet
    "conformance/cluster/node_life.py": {"_renewals"},  # of none it is known that it died
    "conformance/cluster/pod_watch.py": {"_follow"},  # it goes on with the next watch
    "conformance/cluster/run_lease.py": {"_renew"},  # it is renewed again
}


def _names(types: ast.expr | None) -> set[str]:
    """Return the names of what a handler catches; a bare one catches everything."""
    if types is None:
        return {"BaseException"}
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in (types.elts if isinstance(types, ast.Tuple) else [types])
        if isinstance(node, ast.Attribute | ast.Name)
    }


def _swallows(node: ast.AST) -> bool:
    """Return whether a handler of a broad error neither passes it on nor tells of it."""
    match node:
        case ast.ExceptHandler(type=types, name=name, body=body):
            inside = [below for statement in body for below in ast.walk(statement)]
            tells = any(isinstance(below, ast.Name) and below.id == name for below in inside)
            raises = any(isinstance(below, ast.Raise) for below in inside)
            return bool(_names(types) & BROAD) and not tells and not raises
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
            return any(_names(argument) & BROAD for argument in args)
    return False


def _handlers(tree: ast.AST, function: str = "") -> Iterator[str]:
    """Yield the functions that swallow a broad error."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if _swallows(node):
            yield inside
        yield from _handlers(node, inside)


def test_no_handler_of_a_broad_error_gives_an_answer() -> None:
    swallowing = {
        name: set(_handlers(ast.parse((ROOT / name).read_text())))
        for name in LISTED.stdout.split()
        if name.startswith(("divvy/", "conformance/", "components/")) and (ROOT / name).exists()
    }
    assert {name: functions for name, functions in swallowing.items() if functions} == ACCEPTED


def test_the_rule_sees_what_it_forbids() -> None:
    text = """
def silent():
    try: ask()
    except (OSError, kube.KubeError): return []
def suppressed():
    with contextlib.suppress(Exception): ask()
def bare():
    try: ask()
    except: pass
def telling():
    try: ask()
    except Exception as error: log(error)
def raising():
    try: ask()
    except KubeError: raise Unknown from None
def narrow():
    try: ask()
    except OSError: return []
"""
    assert list(_handlers(ast.parse(text))) == ["silent", "suppressed", "bare"]
