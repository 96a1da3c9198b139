"""Runs rounds: a driver, hosts that train clients, and checkpoints."""
