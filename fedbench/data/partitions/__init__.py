"""Partitions: pure functions of labels, domains, options and a seed.

Every scheme assigns training and test images so that a client's two parts have the same classes. Then a share of each
client's training images is held out for validation. All row numbers index `Dataset.samples`.
"""

from collections.abc import Iterable, Iterator

from fedbench.config import Config, PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.assignment import (
    Assignment,
    Deal,
    SamplePool,
    random_stream,
    repeated_image_warnings,
    shared_image_warnings,
)
from fedbench.data.partitions.label_noise import check_noise_clients
from fedbench.data.partitions.newcomers import with_newcomers
from fedbench.data.partitions.public import draw_public
from fedbench.data.partitions.rows import ClientRows, Clients, Partition, client_rows
from fedbench.data.partitions.saved import partition_from_file
from fedbench.data.partitions.scheme import (
    FILE_SCHEME,
    SCHEMES,
    check_keys,
    load,
    names,
    resolve_scheme_options,
    unused_key_warnings,
    with_client_count,
)
from fedbench.data.partitions.validation import draw_validation, own_validation
from fedbench.errors import ConfigError, first_line

__all__ = ["ClientRows", "Clients", "Partition", "names", "partition", "resolve_scheme_options"]


def partition(dataset: Dataset, config: Config, seed: int) -> Partition:
    """The partition of a run; `partition.seed` overrides the run's seed. Raises ConfigError.

    The public set is taken from the train part first, so it is disjoint from every client.
    """
    source, public = SamplePool.of(dataset), None
    options = with_client_count(config.partition, source)
    config = config.model_copy(update={"partition": options})
    seed = seed if options.seed is None else options.seed
    check_noise_clients(options, dataset)
    if options.name == FILE_SCHEME:
        return partition_from_file(source, config, seed)
    check_targets(dataset, options)
    if config.public.size:
        public, reserved = draw_public(source, config.public, seed)
        source = source.without(reserved)
    train, test = deal(source, options, seed)
    val, lines = draw_validation(train, source.labels, config.data.val, random_stream(seed, "val")), list[str]()
    if source.val_rows:
        val, line = own_validation(train, val, source, config)
        lines.append(line)
    clients = client_rows(train, val, test, options.clients)
    warnings = tuple(deal_warnings(source, options, train, test, lines))
    return with_newcomers(Partition(clients, public, warnings, seed), options)


def check_targets(dataset: Dataset, options: PartitionConfig) -> None:
    """Raises ConfigError if the scheme needs classes and the targets are none."""
    if not dataset.classes and not load(options.name).classless:
        able = [*(name for name, scheme in SCHEMES.loadable() if scheme.classless), FILE_SCHEME]
        raise ConfigError(
            f"partition.name = {options.name}: it needs classes, but the targets of data {dataset.name} are "
            f"{dataset.meaning}; take {', '.join(able)}"
        )


def deal(source: SamplePool, options: PartitionConfig, seed: int) -> Deal:
    """The training and test samples that the scheme gives to all clients. Raises ConfigError."""
    try:
        return load(options.name).deal(source, check_keys(options), random_stream(seed, "deal"))
    except MemoryError as error:
        raise ConfigError(
            f"partition {options.name}: the samples of {options.clients} clients do not fit into memory "
            f"({first_line(error)}); lower partition.clients, or the number of samples of each"
        ) from None


def deal_warnings(
    source: SamplePool, options: PartitionConfig, train: Assignment, test: Assignment, lines: Iterable[str]
) -> Iterator[str]:
    """What a user should know of a deal. lines: what is known of its validation samples."""
    scheme, parts = load(options.name), ((train, "training"), (test, "test"))
    if source.one_part:
        share = f"{options.test_share:.0%} of its samples"
        yield f"the data set has no test part: {share} are held out for testing"
    yield from unused_key_warnings(options)
    for part, name in parts:
        yield from repeated_image_warnings(part, name)
    yield from scheme.remarks(source, check_keys(options))
    yield from lines
    if options.reuse:
        image = scheme.image(source)
        for part, name in parts:
            yield from shared_image_warnings(part, name, image)
