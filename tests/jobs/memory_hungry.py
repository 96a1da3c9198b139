"""A method whose third round finds no room on the GPU, once; its trials wait for each other."""

import time
from pathlib import Path

import torch

from fedbench.methods.fedavg import FedAvg


class Hungry(FedAvg):
    """FedAvg that takes too much while a file is there, which it removes."""

    class Options(FedAvg.Options):
        file: str = ""

    def train(self, client, received):
        file = Path(self.options.file)
        meet(file.with_suffix(".meeting"), client.seed)
        if client.round == 3 and file.is_file():
            file.unlink()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has none.")
        return super().train(client, received)


def meet(place: Path, seed: int, patience: float = 90.0) -> None:
    """Waits until runs of two seeds have come, if the place is there. Raises TimeoutError if no other one comes."""
    if place.is_dir():
        (place / str(seed)).touch()
        end = time.monotonic() + patience
        while len(list(place.iterdir())) < 2:
            if time.monotonic() > end:
                raise TimeoutError("no other trial runs beside this one")
            time.sleep(0.05)
