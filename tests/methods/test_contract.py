"""A mistake in the code of a method is one line with the line of that code, before the first round where it can be."""

from pathlib import Path

import pytest

from fedbench.cli.exits import FAILED, MISTAKE
from fedbench.cli.run import main
from tests.methods import mistakes

LATE = {
    "LossInTorch": "ValueError: Expected input batch_size",
    "TypoInAggregate": "TypoInAggregate.aggregate fails: AttributeError: 'ServerState' object has no attribute 'parms'",
    "ResultOfAggregate": "must return nothing: write the result to the server, `server.params = ...`",
    "WeightsInServer": "must leave a tensor in server.params; it left a value of type Upload",
    "UndeclaredAtServer": "ServerState has no field 'momentum', so it would be lost",
    "SetAtServer": "server.seen is a set, which cannot be kept",
    "NoMessage": "NoMessage.send must return a Message; it returned a tensor of shape",
    "NoStart": "NoStart.start must return the method's Server",
    "ForgottenReturn": "must return an upload, `return self.upload(client, trained)`; it returned None",
    "WeightsForUpload": "must return an upload, `return self.upload(client, trained)`; it returned a value of",
    "UploadWithoutModel": "must put the trained weights into its upload, not None",
    "TensorsTraced": "must trace numbers: norm is a tensor of shape []",
    "TensorForPersonal": "must return weights, a Predictor, or None; it returned a tensor of shape",
    "HalfAModel": "; it returned a tensor of shape [10]",
    "TensorForReceived": "must return the client's weights; it returned a tensor of shape",
    "SetInState": "client.state.seen is a set, which cannot be kept: keep tensors, weights, numbers",
    "SetDeepInState": "client.state.seen.classes[1] is a set, which cannot be kept",
    "OtherState": "puts a value of type dict in place of client.state",
    "Undeclared": "PrivateState has no field 'previous', so it would be lost",
    "HalfDeclared": "HalfDeclared.State has no field 'count', so it would be lost",
    "KeptAtTheClient": "Client has no field 'count', so it would be lost",
    "UndeclaredInPersonal": "PrivateState has no field 'count', so it would be lost",
    "CountsInPersonal": "CountsInPersonal.personal writes to client.state.looks, which it must not change",
    "CollectsInPersonal": "writes to client.state.seen.points.0, which it must not change",
    "CountsInScores": "CountsInScores.personal writes to client.state.looks, which it must not change",
    "WritesToModel": "writes to model.params, which it must not change",
    "WritesToReceived": "writes to received.params, which it must not change",
    "WritesToView": "writes to received.params, which it must not change",
    "WritesToMessage": "writes to client.message.params, which it must not change",
    "WritesToStart": "writes to client.initial.params, which it must not change",
    "WritesPastCounting": "WritesPastCounting.personal writes to model.params, which it must not change",
    "KeptInMethod": "KeptInMethod.train writes to self.count, which is lost when a run is resumed",
    "KeptInListOfMethod": "KeptInListOfMethod.aggregate writes to self.seen.0, which is lost",
    "FitsOnTests": "client.test: a method must not learn from the samples for validation and tests, on which fedbench",
    "ChoosesOnValidation": "client.val: a method must not learn from the samples for validation and tests",
    "FitsInScores": "client.fit in the scores of a Predictor: a method must not learn from the samples for validation",
    "KeptInClass": "writes to the class variable KeptInClass.seen, which is lost when a run is resumed and is missing",
    "KeptInBase": "KeptInBase.train writes to the class variable KeptInClass.seen, which is lost",
    "KeptInStateClass": "writes to the class variable KeptInStateClass.State.looks, which is lost",
    "KeptInGlobal": "writes to LAST_SEEN, a global of module tests.methods.mistakes, which is lost",
    "KeptInGlobalTensor": "writes to MEAN_OF_ALL, a global of module tests.methods.mistakes, which is lost",
    "CountsInGlobal": "CountsInGlobal.aggregate writes to CALLS, a global of module tests.methods.mistakes, which is",
    "DrawsFromGlobal": "draws from DRAWS, a global of module tests.methods.mistakes, whose numbers depend on who drew",
    "KeptInDefault": "writes to the default of KeptInDefault.train's argument seen, which is lost",
    "KeptInFunction": "writes to the attribute last of function short, which is lost",
    "CollectsTests": "CollectsTests.personal writes to LAST_SEEN, a global of module tests.methods.mistakes, which",
    "KeptAround": "writes to count, a variable around with_count.<locals>.Around.train, which is lost",
    "OneWeight": "must return one weight for each of 3 uploads, summing to 1 (see fedbench.aggregation.means.normal",
    "NoWeights": "; it returned a value of type NoneType",
    "WeightsOfNothing": "; it returned 3 that sum to 0",
    "WeightsThatAreNone": "; it returned 3 that sum to nan",
    "WholeNumbersAtServer": "and torch.float32 in server.params; it left a tensor of shape [55210] and torch.int64",
    "PartAtServer": "in server.params; it left a tensor of shape [10] and torch.float32",
    "NoNumbersAtServer": "NoNumbersAtServer.aggregate leaves non-finite numbers in server.params",
    "ArrayInState": "client.state.a is a numpy.ndarray, which cannot be kept",
    "FunctionForLoss": "client.fit: loss must be a Loss(...) of fedbench.engine.fit, not a function",
    "TensorForStart": "client.fit: start must be a Weights(...) of fedbench.module.weights, not a Tensor",
    "FunctionForStep": "client.fit: step must be a Step(...) of fedbench.engine.fit, not a function",
    "NewGradient": "the edit pull of a step must change g in place and return nothing; it returned a Tensor",
    "NoLoss": "the loss forgotten must return a tensor, one number that depends on the parameters; it returned N",
    "LossPerSample": "the loss each must return a tensor, one number that depends on the parameters; it returned a ",
    "NumberInMessage": "the field tau of a message is of type int: send a tensor or weights, whose bytes count",
    "FailsInBegin": "ZeroDivisionError: division by zero",
}
EARLY = {
    "UnknownTrainers": "UnknownTrainers.trainers must return one of drawn, all, pooled; it returned 'some'",
    "NoMasks": "NoMasks.private must return Masks",
    "ForgetsSuper": "ForgetsSuper.__init__ must call super().__init__(options, context)",
    "TextOfCheck": "TextOfCheck.check must return a list of lines to say; it returned a value of type str",
    "NothingOfCheck": "NothingOfCheck.check must return a list of lines to say; it returned None",
    "FailsInCheck": "AttributeError: 'Options' object has no attribute 'mu'",
}
IN_ROWS = ("LossInTorch", "NewGradient", "NoLoss", "LossPerSample", "WritesToReceived")
RUN = ["--hosts", "0", "--rounds", "1", "--model", "mlp", "--train.epochs", "1", "--partition.clients", "3"]


def line_of(name: str) -> int:
    """The line that is marked with a name."""
    lines = Path(mistakes.__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {name}"))


@pytest.fixture(autouse=True)
def globals_as_before():
    """Else the next run in this process refuses a module whose globals are no longer those of its file."""
    yield
    mistakes.LAST_SEEN["models"].clear()
    mistakes.CALLS = 0


@pytest.mark.parametrize(
    ("name", "engine"), [*((name, "loop") for name in (*LATE, *EARLY)), *((name, "compiled") for name in IN_ROWS)]
)
def test_a_mistake_is_one_line_and_leaves_nothing(name, engine, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = main([*RUN, "--train.engine", engine, "--method", f"tests.methods.mistakes:{name}", "--out", "out"])
    *shown, line = capsys.readouterr().err.splitlines()
    assert line.startswith("fedbench: error: ")
    assert {**LATE, **EARLY}[name] in line
    assert line.endswith(f"(mistakes.py:{line_of(name)})")
    assert not any("Traceback" in text for text in shown)
    assert code == (FAILED if name in LATE else MISTAKE)
    assert not (tmp_path / "out").exists()
