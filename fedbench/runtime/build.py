"""From a resolved configuration to what works: the learner, the method, and what both halves of it know."""

from functools import partial

from fedbench import methods, models
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition
from fedbench.learner import seeds
from fedbench.learner.learner import Learner
from fedbench.methods.base import Context, Method
from fedbench.runtime.sampling import count_of


def build_learner(config: Config, dataset: Dataset, seed: int, device: str = "cpu") -> Learner:
    """Every process builds the same start model from the seed."""
    with seeds.preserved_streams():
        seeds.seed_everything(seed, "model")
        module = models.build(
            config.model.name, input_shape=dataset.shape, classes=dataset.num_classes, **config.model.options
        )
    kind = methods.load(config.method.name)
    options = kind.Options(**config.method.options)
    return Learner(
        module,
        config.train,
        optimizer=config.train.optimizer,
        head=config.model.head,
        adapt=partial(kind.adapt_model, options=options, seed=seed),
        device=device,
        evaluate_batch=config.evaluate.batch_size,
        by_batches=config.evaluate.accuracy == "batches",
    )


def make_context(config: Config, dataset: Dataset, partition: Partition, seed: int, learner: Learner) -> Context:
    return Context(
        layout=learner.layout,
        train=config.train,
        seed=seed,
        rounds=config.rounds,
        classes=dataset.num_classes,
        sizes=tuple(len(rows.train) for rows in partition.clients),
        public=0 if partition.public is None else len(partition.public),
        drawn=count_of(len(partition.clients), config.participation),
    )


def make_method(config: Config, context: Context) -> Method:
    kind = methods.load(config.method.name)
    return kind(kind.Options(**config.method.options), context)
