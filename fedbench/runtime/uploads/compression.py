"""Shorter uploads: only the update of the parameters is sent, and not all of it.

An update is what a client sends minus what it would send without any change, by default what it received
(`Method.reference`), which the server knows. `topk` is biased, and error feedback repays what it leaves out (Stich,
Cordonnier, Jaggi; NeurIPS 2018, Algorithm 1). `quantised` rounds every entry up or down at random to a multiple of a
step, without bias (Alistarh et al., NeurIPS 2017, section 3.1, relative to the largest entry instead of the norm).
`mask` sends entries that a shared random stream chooses, divided by their share (Konecny et al., 2016, section 2).
"""

from math import ceil

import torch
from torch import Tensor

from fedbench.aggregation.ranks import largest
from fedbench.config.fleet import CompressionConfig
from fedbench.errors import ConfigError
from fedbench.methods.base import Method
from fedbench.methods.client import Client
from fedbench.methods.messages import Encoded, Upload
from fedbench.runtime.uploads.step import Reference, UploadStep

INDEX_BYTES = 4


def check_compression(config: CompressionConfig, method: Method, name: str) -> None:
    """Raises ConfigError for a method whose clients send no parameters, but something else."""
    if config.name != "none" and not method.shared_params.size and method.also_sends:
        raise ConfigError(
            f"compression.name = {config.name}: clients of {name} send {method.also_sends} and no parameters to "
            "compress; leave it out, or compare other methods"
        )


class CompressedUpdates(UploadStep):
    """The parameters of an upload become what arrives of them, and their bytes those that are sent.

    With error feedback the client keeps what was left out.
    """

    def __init__(self, config: CompressionConfig, reference: Reference) -> None:
        self.reference = reference
        self.config, self.keeps_residual = config, config.name == "topk" and config.feedback

    def at_client(self, upload: Upload, client: Client) -> None:
        params = upload.tensors.get("params")
        if self.config.name == "none" or params is None or not upload.sizes["params"]:
            return
        start = self.reference(upload, client.message)
        assert start is not None
        update = params - start
        residual = client.state.residual if self.keeps_residual else None
        if residual is not None and residual.shape == update.shape:  # else what clients send has changed since
            update += residual
        sent = compress(update, self.config, client.generator("compression"))
        if self.keeps_residual:
            client.state.residual = update - sent.tensor
        upload.tensors["params"], upload.sizes["params"] = start + sent.tensor, sent.nbytes


def compress(update: Tensor, config: CompressionConfig, draw: torch.Generator) -> Encoded:
    """The update `[N]` that arrives of a given one, and its bytes."""
    size = len(update)
    count = min(size, max(1, int(config.share * size + 0.5)))
    if config.name == "topk":
        places = min(count * INDEX_BYTES, ceil(size / 8))  # a list of places, or a bit for every entry
        return Encoded(update * largest(update.abs(), count), count * update.element_size() + places)
    if config.name == "mask":
        chosen = torch.zeros(size, dtype=torch.bool)
        chosen[torch.randperm(size, generator=draw)[:count]] = True
        return Encoded(update * chosen.to(update.device) * (size / count), count * update.element_size())
    levels = 2 ** (config.bits - 1) - 1
    step = update.abs().max() / levels
    if not step > 0:
        return Encoded(torch.zeros_like(update), ceil(size * config.bits / 8) + update.element_size())
    noise = torch.rand(size, dtype=update.dtype, generator=draw).to(update.device)
    return Encoded((update / step + noise).floor_() * step, ceil(size * config.bits / 8) + update.element_size())
