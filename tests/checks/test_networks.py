from lightning import LightningModule

from fedbench.checks.networks import Awkward
from fedbench.module.hooks import overrides


def test_it_is_a_module_of_somebody_who_never_heard_of_fedbench():
    module = Awkward(3)
    assert isinstance(module, LightningModule)
    assert overrides(module, "configure_optimizers")
    assert module.classifier.out_features == 3
    assert {"BatchNorm1d", "Dropout"} <= {type(part).__name__ for part in module.body}
