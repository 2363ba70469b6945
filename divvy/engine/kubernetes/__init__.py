"""The provider for ``kubernetes:*``: server-side apply with one field manager per stack."""
