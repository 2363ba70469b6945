"""What runs inside a node: its root file system and its first process (standard library only)."""
