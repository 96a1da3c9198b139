"""Private states of clients, checkpoints, and the files that hold them."""
