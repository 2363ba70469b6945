"""The certificate authorities that are trusted for an API server."""

from __future__ import annotations

import ssl
from pathlib import Path


def trusting(file: str | Path | None = None, data: str | None = None) -> ssl.SSLContext:
    """Return how to speak TLS with servers of these authorities, else of the system's.

    As kubectl, it takes an authority that is not a root, and one without a key identifier.
    """
    context = ssl.create_default_context(cafile=file, cadata=data)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
