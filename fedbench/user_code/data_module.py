"""The data sets of a LightningDataModule, of which nothing else is taken: what its loaders do besides is refused."""

from types import NoneType
from typing import Any

from fedbench.errors import ConfigError, RunError


def loaders_of(module: Any) -> dict[str, Any]:
    """The loaders of train, val and test, as far as the module has them. Raises ConfigError."""
    from lightning import LightningDataModule

    called = f"data {type(module).__name__}"
    for hook in ("on_before_batch_transfer", "on_after_batch_transfer"):
        if getattr(type(module), hook, None) not in (None, getattr(LightningDataModule, hook)):
            raise ConfigError(f"{called}: its {hook} is not called; move it to the model, or into the data sets")
    loaders: dict[str, Any] = {}
    try:
        module.prepare_data()
        for stage, parts in (("fit", ("train", "val")), ("test", ("test",))):
            module.setup(stage)
            loaders |= {part: loader for part in parts if (loader := _loader(module, part)) is not None}
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{called}: prepare_data(), setup(stage) and its loaders must work without a Trainer: {RunError.of(error)}"
        ) from error
    return {part: _one_loader(loader, f"{called}.{part}_dataloader()") for part, loader in loaders.items()}


def collate_of(module: Any, loaders: dict[str, Any]) -> Any:
    """The collate function of the loaders, None if it is PyTorch's. Raises ConfigError if they have different ones."""
    from torch.utils.data import default_collate, default_convert

    usual = (default_collate, default_convert)
    collates = {None if loader.collate_fn in usual else loader.collate_fn for loader in loaders.values()}
    if len(collates) > 1:
        raise ConfigError(
            f"data {type(module).__name__}: its loaders have different collate functions; give all of them the same one"
        )
    return collates.pop() if collates else None


def loading_of(loader: Any) -> tuple[int | None, bool]:
    """The size of a loader's batches, and whether their order is random."""
    from torch.utils.data import RandomSampler

    return getattr(loader, "batch_size", None), isinstance(getattr(loader, "sampler", None), RandomSampler)


def is_loader(value: Any) -> bool:
    return hasattr(value, "dataset") and hasattr(value, "collate_fn")


def _loader(module: Any, part: str) -> Any:
    """The loader of a part; None if the module has none."""
    from lightning import LightningDataModule

    name = f"{part}_dataloader"
    is_overridden = getattr(type(module), name) is not getattr(LightningDataModule, name)
    loader = getattr(module, name)() if is_overridden else None
    return None if isinstance(loader, list) and not loader else loader


def _one_loader(loader: Any, where: str) -> Any:
    """The one loader of a part. Raises ConfigError."""
    from torch.utils.data import DataLoader, IterableDataset

    if isinstance(loader, list | tuple) and len(loader) == 1:
        (loader,) = loader
    if not is_loader(loader):
        raise ConfigError(f"{where} returns a {type(loader).__name__}; one DataLoader is expected")
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        _check_order(loader, where)
    return loader


def _check_order(loader: Any, where: str) -> None:
    """Raises ConfigError if a loader does not give each item once, in batches of single items."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

    sampler, batches = loader.sampler, loader.batch_sampler
    drawer = next(
        (one for one in (sampler, batches) if one and type(one).__module__ != RandomSampler.__module__), sampler
    )
    again = isinstance(sampler, RandomSampler) and (sampler.replacement or len(sampler) != len(loader.dataset))
    if (
        again
        or type(sampler) not in (RandomSampler, SequentialSampler)
        or type(batches) not in (BatchSampler, NoneType)
    ):
        raise ConfigError(
            f"{where} draws with a {type(drawer).__name__}, but every item of its data set is read once; leave it out, "
            "and choose items with torch.utils.data.Subset"
        )
    if batches is None:
        raise ConfigError(f"{where} has batch_size=None; give single items as the data set, and a batch_size")
    if loader.drop_last:
        raise ConfigError(
            f"{where} has drop_last=True, but clients train on all of their batches; leave it out, and leave items out "
            "with torch.utils.data.Subset"
        )
