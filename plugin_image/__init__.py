"""The agent's image: what goes into it and how it is built."""
