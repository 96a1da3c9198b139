"""Four papers (CO-PFL, FedOBP, FedCAC, FedMosaic): tests of their claims, reproductions of their tables."""
