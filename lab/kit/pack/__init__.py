"""Makes the kit's folder on a development machine; nothing of it runs on the machine with a GPU."""
