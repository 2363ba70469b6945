"""Take a fresh machine to everything that demo and tests need (standard library only)."""
