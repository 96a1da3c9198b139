"""Where a run keeps models: a folder for each client, for the global model, and for what all clients share."""

from fedbench.config import Config

MODELS_FOLDER = "models"
"""A run's folder for these models."""
GLOBAL, SHARED = "global", "shared"
"""The folders of the server's models, beside those of the clients."""


def base_file(config: Config, model: str) -> str:
    """The file of the frozen parameters, which all clients with a model have in a seed."""
    names = list(dict.fromkeys(config.model.names))
    return f"base-{names.index(model)}.safetensors" if len(names) > 1 else "base.safetensors"


def client_folder(client: int) -> str:
    """The name of a client's folder."""
    return f"client-{client}"
