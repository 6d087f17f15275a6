"""Other Pythons, for what has to be the same on all of them."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def installed(python: str, folder: Path) -> str:
    """An interpreter with what the tests need, in a folder that goes away."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    interpreter = str(folder / "bin" / "python")
    needed = [str(ROOT), "pyyaml"]
    subprocess.run([interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needed], check=True)
    return interpreter


def said(interpreter: str, hash_seed: int, module: str, *arguments: str) -> str:
    """What a module of the tests prints on another Python."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [interpreter, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()
