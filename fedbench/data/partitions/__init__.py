"""Partitions: pure functions of labels, domains, options and a seed.

Every scheme assigns training and test images so that a client's two parts have the same classes. Then a share of each
client's training images is held out for validation. All row numbers index `Dataset.samples`.
"""

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.partitions.assignment import (
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
        return partition_from_file(dataset, config, seed)
    scheme = load(options.name)
    if not dataset.classes and not scheme.classless:
        able = [*(name for name, scheme in SCHEMES.loadable() if scheme.classless), FILE_SCHEME]
        raise ConfigError(
            f"partition.name = {options.name}: it needs classes, but the targets of data {dataset.name} are "
            f"{dataset.meaning}; take {', '.join(able)}"
        )
    if config.public.size:
        public, reserved = draw_public(source, config.public, seed)
        source = source.without(reserved)
    keys = check_keys(options)
    try:
        train, test = scheme.deal(source, keys, random_stream(seed, "deal"))
    except MemoryError as error:
        raise ConfigError(
            f"partition {options.name}: the samples of {options.clients} clients do not fit into memory "
            f"({first_line(error)}); lower partition.clients, or the number of samples of each"
        ) from None
    val = draw_validation(train, source.labels, config.data.val, random_stream(seed, "val"))
    warnings = [
        *unused_key_warnings(options),
        *repeated_image_warnings(train, "training"),
        *repeated_image_warnings(test, "test"),
    ]
    warnings += scheme.remarks(source, keys)
    if source.val_rows:
        val, line = own_validation(train, val, source, config)
        warnings.append(line)
    if options.reuse:
        image = scheme.image(source)
        warnings += [*shared_image_warnings(train, "training", image), *shared_image_warnings(test, "test", image)]
    if source.one_part:
        share = f"{options.test_share:.0%} of its samples"
        warnings.insert(0, f"the data set has no test part: {share} are held out for testing")
    dealt = Partition(client_rows(train, val, test, options.clients), public, tuple(warnings), seed)
    return with_newcomers(dealt, options)
