"""`python -m trainjob_cli`."""

from .main import script

script()
