"""The embedded deployment engine behind the unmodified Pulumi SDK."""
