"""Four papers (CO-PFL, FedOBP, FedCAC, FedMosaic): their claims tested, their published tables made again."""
