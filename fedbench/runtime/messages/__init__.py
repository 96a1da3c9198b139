"""How messages travel between the driver and its hosts."""
