"""The hooks and fixtures of the product's tests, for the laboratory's own."""

from tests.conftest import (
    deployed,
    installed,
    lab,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_pyfunc_call,
)

__all__ = [
    "deployed",
    "installed",
    "lab",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_pyfunc_call",
]
