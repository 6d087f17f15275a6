"""Durable calls: what workflow code can wait for, one file per kind; each declares itself when it is imported."""

from importlib import import_module
from pkgutil import iter_modules

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
