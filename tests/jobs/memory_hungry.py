"""A method whose third round finds no room on the GPU, once."""

from pathlib import Path

import torch

from fedbench.methods.fedavg import FedAvg


class Hungry(FedAvg):
    """FedAvg that takes too much while a file is there, which it removes."""

    class Options(FedAvg.Options):
        file: str = ""

    def train(self, client, received):
        file = Path(self.options.file)
        if client.round == 3 and file.is_file():
            file.unlink()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has none.")
        return super().train(client, received)
