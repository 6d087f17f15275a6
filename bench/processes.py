"""Other processes of a scenario: they say words with a number, and work until their standard input ends."""

import subprocess
import sys


def begun(module: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process that runs this module."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]", word: str) -> float:
    """The number the process says after this word."""
    assert process.stdout is not None
    for line in process.stdout:
        spoken, number = line.split()
        if spoken == word:
            return float(number)
    raise ChildProcessError(f"the process ended without saying {word!r}")


def end(process: "subprocess.Popen[str]") -> None:
    """Let the process finish what it does, and see that it went well."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0
