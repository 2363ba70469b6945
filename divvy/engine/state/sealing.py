"""Resources with their secrets encrypted, and back: the one station before any file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from divvy.engine.state.resource import ResourceState, resource_from_json, resource_to_json
from divvy.engine.state.secrets import Passphrase, opened, sealed
from divvy.engine.state.stack_state import Pending, record_key
from divvy.engine.values import with_marks


class Sealing:
    """Seals and opens the records of one stack.

    ``salt`` is the stack's salt line, None until a first secret needs one.
    """

    def __init__(self, salt: str | None, read_passphrase: Callable[[], str | None]) -> None:
        self._read_passphrase = read_passphrase
        self._crypter = Passphrase(salt, read_passphrase)
        self._written: dict[tuple[str, str, str], ResourceState] = {}

    @property
    def salt(self) -> str | None:
        """Return the salt line that the sealed records need."""
        return self._crypter.salt

    def use_salt(self, salt: str | None) -> None:
        """Open what follows with this salt, unless one is known."""
        if salt and self._crypter.salt is None:
            self._crypter = Passphrase(salt, self._read_passphrase)

    def remember(self, resources: Iterable[ResourceState]) -> None:
        """Note how records are kept: what is sealed in them is never written in the clear."""
        self._written = {record_key(resource): resource for resource in resources}

    def sealed(self, resource: ResourceState) -> dict[str, Any]:
        """Render a resource; a value that was sealed before is never written in the clear.

        A component's values, and the stack's outputs, are secret where the program says so.
        """
        before = self._written.get(record_key(resource))
        if before is not None and resource.custom:
            resource = replace(
                resource,
                inputs=with_marks(resource.inputs, before.inputs, same=True),
                outputs=with_marks(resource.outputs, before.outputs, same=True),
            )
        self._written[record_key(resource)] = resource
        raw = resource_to_json(resource)
        for name in ("inputs", "outputs"):
            if name in raw:
                raw[name] = sealed(raw[name], self._crypter)
        return raw

    def opened(self, raw: Mapping[str, Any]) -> ResourceState:
        """Read a resource, its secrets marked; raises StateProblem for another passphrase."""
        resource = resource_from_json(raw)
        return replace(
            resource,
            inputs=opened(resource.inputs, self._crypter),
            outputs=opened(resource.outputs, self._crypter),
        )

    def pending(self, operation: str, raw: Mapping[str, Any]) -> Pending:
        """Read a step whose end is unknown, in the format's words or in the journal's."""
        resource = self.opened(raw)
        creating = operation in ("creating", "create", "replace")
        return Pending("create" if creating else operation, resource.urn, resource.id, resource)
