"""A stack's state: Pulumi's own checkpoint, a journal beside it, a lock, encrypted secrets."""
