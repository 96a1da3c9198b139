"""Four papers (CO-PFL, FedOBP, FedCAC, FedMosaic): tests of their claims, reproductions of their tables."""

TUNE_SEEDS = (90,)
"""The seed for choosing: papers choose on one."""
