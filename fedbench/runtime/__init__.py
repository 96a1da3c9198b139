"""Rounds: a driver, hosts that train clients, and what survives a kill."""
