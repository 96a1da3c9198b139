"""Signals that end a command are answered like Ctrl-C, with an exit code of their own."""

import os
import signal

import pytest

from fedbench.cli import command
from fedbench.cli.signals import ENDING, interruption


@pytest.fixture(autouse=True)
def plain_handlers():
    plain = dict.fromkeys(ENDING, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}  # `&` ignores SIGINT
    before = {number: signal.signal(number, handler) for number, handler in plain.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "line"), [(15, "ended by SIGTERM"), (1, "ended by SIGHUP"), (2, "interrupted")])
def test_a_signal_is_one_line_and_an_exit_code_after_all_is_cleaned_up(number, line, capsys):
    cleaned = []

    @command
    def inner(argv):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # as Ray does
        finally:
            cleaned.append(True)

    assert command(inner)([]) == 128 + number
    assert capsys.readouterr().err == f"fedbench: {line}\n"
    assert cleaned
    assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_DFL] * 2


def test_a_training_command_says_that_it_can_be_repeated(capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    assert command(interrupted, continues=True)([]) == 130
    line = "fedbench: interrupted; repeat the command: it continues from the last checkpoint\n"
    assert capsys.readouterr().err == line


def test_a_signal_that_the_process_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruption():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
