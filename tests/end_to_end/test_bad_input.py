"""A user's mistake: exit code 2, one line on stderr that says what to do, no stack trace, nothing left behind."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedbench import Config, ConfigError, run
from fedbench.cli import main

ROOT = Path(__file__).parents[2]
QUICK = ["--hosts", "0", "--rounds", "1"]
MODULES = '''
import torch
from lightning import LightningModule
from torch import nn
from torch.nn.functional import cross_entropy


class Plain(LightningModule):
    """A network whose last layer nobody named."""

    def __init__(self, classes=10, hidden=16):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ThreeScores(Plain):
    def forward(self, x):
        return self.net(x)[:, :3]


class TwoThings(Plain):
    def forward(self, x):
        return {"scores": self.net(x), "x": x}


class ForColour(Plain):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))


class Manual(Plain):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class AsksTheTrainer(Plain):
    def training_step(self, batch, batch_idx):
        self.trainer.strategy.barrier()
        return super().training_step(batch, batch_idx)


class Raises(Plain):
    def training_step(self, batch, batch_idx):
        raise RuntimeError("no idea")


class LossPerImage(Plain):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return cross_entropy(self(x), y, reduction="none")


class Normed(Plain):
    def __init__(self, classes):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


class NeedsDepth(Plain):
    def __init__(self, depth):
        super().__init__()


class NoSteps(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 10)

    def forward(self, x):
        return self.net(x.flatten(1))


class NoOptimizer(NoSteps):
    training_step = Plain.training_step


class NoForward(LightningModule):
    training_step = Plain.training_step


class ManyLines(Plain):
    def __init__(self):
        raise RuntimeError("one line\\nand another")


class NamesAnOptimizer(Plain):
    def configure_optimizers(self):
        return "adam"


class Leaves(Plain):
    def training_step(self, batch, batch_idx):
        raise SystemExit(3)


def no_data():
    raise RuntimeError("the disk is gone")
'''


@pytest.fixture(autouse=True)
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's folder: modules of their own beside nothing else."""
    (tmp_path / "mine.py").write_text(MODULES)
    (tmp_path / "unfinished.py").write_text("def model(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], str]:
    """Runs a command that must be refused and gives its one line, which may come after what was begun before it."""

    def check(argv: list[str]) -> str:
        before = files(tmp_path)
        capsys.readouterr()
        code = main(argv)
        told = capsys.readouterr()
        assert (code, told.out) == (2, ""), told
        *begun, line = told.err.splitlines()
        assert line.startswith("fedbench: error: "), told.err
        assert len(begun) < 4, told.err
        assert not any("error" in step for step in begun), told.err
        assert files(tmp_path) == before
        return line

    return check


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts and path.name != "cache"}


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("--method fedcacc", ["unknown method 'fedcacc'", "did you mean fedcac"]),
        ("--method nowhere:Mine", ["method 'nowhere:Mine'", "cannot be imported", "No module named 'nowhere'"]),
        ("--method mine:Plain", ["method 'mine:Plain'", "not a subclass of fedbench.methods.base.Method"]),
        ("--model resnet19", ["unknown model 'resnet19'", "did you mean resnet18", "package.module:Class"]),
        ("--data cifar11", ["unknown data set 'cifar11'", "did you mean cifar10 or cifar10c or cifar100?"]),
        ("--preset fedcac", ["--preset fedcac", "unknown preset", "did you mean fedcac-cifar10?"]),
        ("--lr 0.1", ["unknown flag --lr", "did you mean --train.lr?"]),
        ("--train.learning_rate 0.1", ["unknown flag --train.learning_rate"]),
        ("--method fedcac --method.taau 0.3", ["unknown key method.taau", "did you mean tau"]),
        ("--model mine:Plain --model.hiden 3", ["unknown key model.hiden", "did you mean hidden?"]),
        ("--data.sise 3", ["unknown key data.sise"]),
        ("--loggers wandbb", ["loggers = 'wandbb'", "wandb, csv, tensorboard"]),
        ("--loggers mine:Plain", ["loggers = 'mine:Plain'", "not a Lightning Logger"]),
    ],
)
def test_unknown_names(refused, line, parts):
    told = refused(["run", *line.split(), *QUICK])
    assert all(part in told for part in parts), told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--train.lr -1", "train.lr = -1: must be a number > 0"),
        ("--train.lr fast", "train.lr = 'fast': must be a number > 0"),
        ("--train.momentum 1", "train.momentum = 1: must be a number in [0, 1)"),
        ("--train.lr inf", "train.lr = 'inf': must be a number > 0"),
        ("--train.batch_size 0", "train.batch_size = 0: must be a whole number >= 1 or full"),
        ("--partition dirichle", "unknown scheme 'dirichle'"),
        ("--method fedcac --method.tau 3", "method.tau = 3: must be a number in [0, 1]"),
        ("--method fedcac --method.tau most", "method.tau = 'most': must be a number in [0, 1]"),
        ("--method fedprox --method.mu -1", "method.mu = -1: must be a number >= 0"),
        ("--seeds 1 1", "seeds = [1, 1]: give each seed once"),
        ("--participation 1.5", "participation = 1.5: must be a share in (0, 1] or a whole count >= 2"),
        ("--participation 20", "participation = 20: there are 10 clients; take at most that many"),
        ("--partition.flip_clients 10", "partition.flip_clients: client 10 does not exist; clients are 0 to 9"),
        (
            "--method fedcac --method.buffers private",
            "unknown key method.buffers: method fedcac takes beta, bn_stats",
        ),
        ("--method fedmosaic", "method fedmosaic needs a public unlabelled set: set public.size"),
        ("--evaluate.clients 200", "evaluate.clients = 200: there are 10 clients; take at most that many"),
        ("--loggers csv csv", "loggers = ['csv', 'csv']: give each logger once"),
        ("--seeds 99999999999999999999999", "must be a list of whole numbers in [0, 2147483647]"),
        ("--name ../../esc", "name = '../../esc': must be the name of one folder"),
        (
            "--method.tau 0.5",
            "unknown key method.tau: method fedavg takes buffers, weighting; fedcac, fedcp, floco have it",
        ),
        ("--data parquet:", "--data parquet: has no path"),
        (f"--data {ROOT}/pyproject.toml", "write package.module:factory, a function that returns the data"),
        ("--data some/table.csv.gz", "write csv:some/table.csv.gz"),
        ("--data folder:", "--data folder: has no path"),
        ("--public.size 5000", "at most 1270 class-balanced samples are there"),
    ],
)
def test_values(refused, line, told):
    assert told in refused(["run", *line.split(), *QUICK])


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            "shards --partition.images 500",
            ["class 0 has 151 training samples", "1000 are needed, 500 for each of 2 clients", "lower"],
        ),
        ("shards --partition.classes 11", ["partition.classes = 11", "10 classes"]),
        ("pathological --partition.train_size 5000", ["a client needs 2500 of it", "lower partition.train_size"]),
        ("iid --partition.clients 1000", ["1000 clients", "there are 359", "lower partition.clients"]),
        ("dirichlet --partition.clients 2000", ["2000 clients", "20000 in all, there are 1797"]),
        ("dirichlet --partition.min_images 900", ["lower partition.clients or partition.min_images"]),
        ("iid --partition.train_size 900", ["lower partition.clients or partition.train_size"]),
        ("iid --partition.total 5", ["there are 5; lower partition.clients, or raise partition.total"]),
        (
            "dirichlet --partition.alpha 0.001 --partition.clients 50 --partition.max_draws 20",
            ["none of 20 draws with alpha 0.001 gave each of 50 clients", "raise partition.alpha"],
        ),
        ("practical --partition.total 2000", ["partition.total = 2000", "there are 1797 samples"]),
        ("domain", ["the data set has 0 domains"]),
        ("file", ["set partition.path", "--partition.path"]),
        ("file --partition.path none.json", ["none.json: cannot be read (No such file or directory)"]),
    ],
)
def test_partitions_that_the_data_cannot_give(refused, line, parts):
    told = refused(["run", "--partition", *line.split(), *QUICK])
    assert all(part in told for part in parts), told


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("mine:Plain --method fedper", ["--model.head NAME", "the last layer is 'net.3'"]),
        ("mine:Plain --method fedper --model.head nett", ["model.head = 'nett'", "did you mean net"]),
        ("mine:ThreeScores", ["class scores of shape [batch, 10]", "(2, 3) for a batch of 2"]),
        ("mine:TwoThings", ["class scores of shape [batch, 10]", "returned dict"]),
        ("mine:ForColour", ["fails on samples of shape (1, 8, 8)", "shapes cannot be multiplied"]),
        ("mine:Manual", ["Manual optimises manually", "--train.engine trainer"]),
        ("mine:AsksTheTrainer", ["self.trainer.strategy", "--train.engine trainer"]),
        ("mine:Raises", ["model Raises fails in training", "RuntimeError: no idea"]),
        ("mine:Leaves", ["model Leaves fails in training", "SystemExit: sys.exit(3) would end the whole command"]),
        ("mine:ManyLines", ["its constructor failed (RuntimeError: one line and another, mine.py:"]),
        ("mine:NamesAnOptimizer", ["NamesAnOptimizer.configure_optimizers: ", "should be one of: * `Optimizer`"]),
        ("mine:LossPerImage", ["must return a scalar loss", "shape [50]"]),
        ("mine:Normed --train.batch_size 1", ["train.batch_size = 1", "BatchNorm", "2 or more"]),
        ("mine:NeedsDepth", ["needs model.depth"]),
        ("mine:NoSteps", ["no training_step"]),
        ("mine:NoForward", ["no forward(self, x) that returns the outputs"]),
        ("mine:NoOptimizer", ["no configure_optimizers", "--train.optimizer sgd"]),
        ("mine:no_data", ["not a subclass of lightning.LightningModule"]),
        ("mine:Plein", ["module mine has no Plein", "did you mean Plain"]),
        ("unfinished:Model", ["importing unfinished failed", "SyntaxError", "unfinished.py, line 1"]),
        ("mlp --model.classes 3", ["model.classes", "decided by the data"]),
    ],
)
def test_models_that_cannot_be_trained(refused, line, parts):
    told = refused(["run", "--model", *line.split(), *QUICK])
    assert all(part in told for part in parts), told


def test_a_method_with_a_syntax_error(refused):
    assert "importing unfinished failed (SyntaxError" in refused(["run", "--method", "unfinished:Mine", *QUICK])


def png(seed: int, side: int = 8) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def write(path: Path, images: list[bytes | None], labels: list[int | None]) -> Path:
    """As Hugging Face writes it, with the names of two classes."""
    rows = [{"bytes": image, "path": None} for image in images]
    table = pa.table({"image": rows, "label": pa.array(labels, pa.int64())})
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path)
    return path


@pytest.fixture
def images() -> list[bytes | None]:
    return [png(seed) for seed in range(40)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("folder:nowhere", "nowhere: no such folder"),
        ("parquet:nowhere", "nowhere: no such file or folder"),
        ("parquet", "did you mean parquet:PATH?"),
        ("mine:no_data", "the factory failed: RuntimeError: the disk is gone (mine.py:"),
        ("mine:nothing", "module mine has no nothing"),
    ],
)
def test_data_that_are_not_there(refused, name, told):
    assert told in refused(["run", "--data", name, *QUICK])


def test_a_truncated_parquet_file_is_named(refused, tmp_path, images):
    path = write(tmp_path / "pets.parquet", images, [0, 1] * 20)
    path.write_bytes(path.read_bytes()[:-100])
    assert "pets.parquet: damaged or incomplete parquet file" in refused(["run", "--data", f"parquet:{path}", *QUICK])


@pytest.mark.parametrize(
    ("row", "image", "label", "parts"),
    [
        (7, b"\x89PNG nothing", 0, ["row 7", "image"]),
        (8, png(8)[:-30], 0, ["row 8", "image"]),
        (9, png(9), 2, ["row 9", "label 2", "0 to 1"]),
        (10, png(10), -1, ["row 10", "label -1"]),
        (11, png(11), None, ["row 11", "label"]),
        (12, None, 0, ["row 12", "image"]),
        (13, png(13, side=9), 0, ["row 13", "data.size"]),
    ],
)
def test_rows_that_cannot_be_used_are_named(refused, tmp_path, images, row, image, label, parts):
    labels: list[int | None] = [0, 1] * 20
    images[row], labels[row] = image, label
    path = write(tmp_path / "pets.parquet", images, labels)
    told = refused(["run", "--data", f"parquet:{path}", *QUICK])
    assert all(part in told for part in ["pets.parquet", *parts]), told


def test_a_damaged_image_file_is_named(refused, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for seed in range(10):
            (tmp_path / "pets" / name / f"{seed}.png").write_bytes(png(seed))
    (tmp_path / "pets" / "dog" / "3.png").write_bytes(png(3)[:60])
    told = refused(["run", "--data", f"folder:{tmp_path / 'pets'}", *QUICK])
    assert "pets/dog/3.png" in told


@pytest.mark.parametrize("command", ["run", "grid"])
def test_an_output_folder_that_cannot_be_written(refused, tmp_path, command):
    (tmp_path / "file").write_text("")
    told = refused([command, "--method", "fedcac", "--out", str(tmp_path / "file" / "x"), *QUICK])
    where = tmp_path / "file"
    assert f"{where / 'x'}: cannot be written, because {where} is a file; move it away and repeat the command" in told
    assert "or choose another folder with --out" in told


def test_going_on_where_nothing_is(refused):
    assert "holds no run to continue" in refused(["run", "--resume", "--out", "new/place", *QUICK])


def test_going_on_with_another_configuration_names_the_keys(refused, tmp_path):
    asked = ["run", *QUICK, "--train.epochs", "1", "--out", str(tmp_path / "kept")]
    assert main(asked) == 0
    (tmp_path / "kept" / "summary.json").unlink()  # as after a kill
    for more in ([], ["--resume"]):
        told = refused([*asked, *more, "--train.lr", "0.5", "--partition.alpha", "2", "--seeds", "0", "1"])
        assert "train.lr: 0.01 -> 0.5" in told
        assert "partition.alpha: 0.5 -> 2" in told
        assert "seeds: [0] -> [0, 1]" in told


def test_a_configuration_file_that_is_none(refused, tmp_path):
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "bent.yaml").write_text("rounds: [1\n")
    (tmp_path / "typo.yaml").write_text("train: {lrr: 1}\n")
    (tmp_path / "twice.yaml").write_text("rounds: 1\nrounds: 2\n")
    (tmp_path / "number.yaml").write_text("1: 2\n")
    (tmp_path / "null.yaml").write_text('name: "a\\0b"\n')
    for name, told in (
        ("list.yaml", "a mapping of keys is expected"),
        ("bent.yaml", "not valid YAML (line"),
        ("typo.yaml", "unknown key train.lrr: did you mean lr"),
        ("twice.yaml", "line 2: duplicate key rounds"),
        ("number.yaml", "line 1: key 1 is not text"),
        ("null.yaml", "contains a null byte"),
        ("none.yaml", "cannot be read (No such file or directory)"),
    ):
        assert told in refused(["run", "--config", name])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run --hosts 2 --cpus-per-host 4000", "2 hosts of 4000 CPU need 8000"),
        ("run --hosts 11", "there are 10 clients"),
        ("grid --method fedper --public.size 5000", "at most 1270"),
        ("grid --method fedcac --space method.taau=1", "unknown key method.taau"),
        ("grid --method fedcac --space method.tau=2,3", "method.tau = 2: must be a number in [0, 1]"),
        (
            "grid --method fedcac --space train.lr=uniform(0.1,1)",
            "train.lr is a distribution, which a grid cannot list",
        ),
        ("grid --method fedcac --space train.lr=uniform(0.1)", "uniform() missing 1 required positional argument"),
        ("grid --method perfed-ckt --public.size 50 --space paper", "the paper of perfed-ckt names no grid"),
        ("grid --method fedcac --search optunna --samples 3", "did you mean optuna"),
        (
            "compare --methods fedcac --tune-rounds ful",
            "tune_rounds = 'ful': must be halving or full; did you mean full?",
        ),
        (
            "grid --method fedcac --space seeds=1,2",
            "space: seeds: keys of method.*, train.* and arguments of the model",
        ),
        ("grid --method fedcac --space partition.alpha=1,2", "set one value with --partition.alpha"),
        ("grid --method fedcac --space method.tau=0.1,0.1", "method.tau = [0.1, 0.1]: must be one or more different"),
        ("grid --method fedcac --tune-seeds", "--tune-seeds: needs a value (list of whole numbers"),
        ("grid --method fedcac --tune-seeds 0", "tune_seeds: 0 is also a final seed"),
        ("compare", "--methods is missing: name the methods to compare"),
        ("compare --methods fedper,fedper", "methods: fedper is given twice"),
        ("compare --methods fedcac:taau=1", "unknown key method.taau"),
        ("compare --methods fedcac:lr=1", "unknown key method.lr: did you mean train.lr?"),
        ("grid --method fedcac --space lr=0.1,0.2", "space: lr: names no section; write train.lr"),
        ("compare --methods fedcac:tau=2", "method.tau = 2: must be a number in [0, 1]"),
        ("compare --methods tau=2", "methods: tau=2: no method"),
        ("compare --methods fedcc", "unknown method 'fedcc': did you mean fedcac"),
        ("compare --methods fedper --data.val 0", "a comparison chooses on the validation split; set one, for"),
        ("compare --methods fedper --seeds 90", "reported results; use others, for example --tune-seeds 91"),
        ("compare --methods fedper --method.mu 1", "write NAME:mu=1 in --methods"),
        ("compare --methods fedper:partition.alpha=1", "must be the same for all that are compared"),
        ("compare --methods fedmosaic", "needs a public unlabelled set"),
        ("compare --methods mine:Plain", "'mine:Plain' is not a subclass of fedbench.methods.base.Method"),
        ("grid --method fedcac --data.val 0", "a grid chooses on the validation split"),
        ("grid --method fedcac --baselines loca", "unknown method 'loca': did you mean local or floco or ifca?"),
        ("grid --method fedper --model mine:Plain", "--model.head NAME"),
        ("grid --method mine:Plain", "'mine:Plain' is not a subclass of fedbench.methods.base.Method"),
        ("report", "give one folder"),
        ("report nowhere", "no such folder"),
        ("report .", "no run here"),
        ("methods fedcacc", "unknown method 'fedcacc'"),
        ("rnu", "unknown command 'rnu': did you mean run?"),
    ],
)
def test_commands_that_cannot_start(refused, line, told):
    assert told in refused(line.split())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--hosts 4 --cpus-per-host 8000", "one trial needs 32000 CPU (4 hosts), there are"),
        ("--hosts 1 --gpus-per-host 1000", "one trial needs 1000 GPU (1 host), there are"),
    ],
)
def test_fewer_resources_than_one_trial_needs(refused, local_ray, line, told):
    assert told in refused(["grid", "--method", "fedcac", *line.split()])


def test_the_lines_are_all_that_a_fresh_process_prints(tmp_path):
    lines = {
        "run --model mine:ThreeScores --hosts 0": "class scores of shape [batch, 10]",
        "run --hosts 2 --cpus-per-host 4000": "2 hosts of 4000 CPU need 8000 CPU",
        "run --hosts 1 --address 127.0.0.1:1": "no Ray cluster answers there",
        "run --hosts 1 --address foo": "resources.address = 'foo': must be local, auto or host:port",
        "run --hosts 1 --address=": "resources.address = '': must be",
        "run --hosts 1 --address host:port": "resources.address = 'host:port': must be",
        "run --hosts 1 --address host:66000": "resources.address = 'host:66000': must be",
        "run --hosts 1 --address http://host:8265": "resources.address = 'http://host:8265': must be",
    }
    code = "import sys; from fedbench.cli import main; sys.exit(sum(main(line.split()) for line in sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *lines], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2 * len(lines), "")
    begun = ("decoding data digits", "data: digits, ")  # the first only where it was not decoded yet
    first, *told = [line for line in done.stderr.splitlines() if not line.startswith(begun)]
    assert first == "loading PyTorch, checking the configuration"
    assert len(told) == len(lines), done.stderr
    assert all(part in line for part, line in zip(lines.values(), told, strict=True)), told
    assert not (tmp_path / "results").exists()


def test_in_python_the_mistake_is_a_config_error():
    with pytest.raises(ConfigError, match=r"unknown key train\.lrr: did you mean lr"):
        Config(train={"lrr": 0.1})
    with pytest.raises(ConfigError, match="needs a public unlabelled set"):
        run(Config(method="fedmosaic"))
    with pytest.raises(ConfigError, match=r"experiment = '\.\./x': must be the name of one folder"):
        run(Config(), experiment="../x")
