"""Makes room for pods of a high priority that wait for claims: a controller of its own."""
