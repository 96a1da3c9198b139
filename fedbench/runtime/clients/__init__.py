"""The data of a host's clients, their common steps on one engine, and checks of their results."""
