"""`visibility-api` and `python -m visibility_api`: runs cli.py, or says what to install.

Dependencies are missing when pip was run with `--no-deps`, or when the package is only on PYTHONPATH. This
module therefore needs the standard library alone, and a syntax that old Pythons can parse.
"""

import sys

OLDEST_PYTHON = (3, 11)
INSTALL = "python3 -m pip install trainjob-visibility (in a checkout: python3 -m pip install ./reporter .)"


def main() -> int:
    """The exit code; 1 when Python is too old or a dependency is missing."""
    if sys.version_info < OLDEST_PYTHON:
        needed, found = (".".join(map(str, version[:2])) for version in (OLDEST_PYTHON, sys.version_info))
        return _cannot_start(f"Python {needed} or newer is needed, this is Python {found}")
    try:
        from visibility_api.cli import main as run_command

        return run_command()
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if missing.partition(".")[0] == __package__:
            raise  # a fault of this package, which installing dependencies does not fix
        return _cannot_start(f"the module {missing!r} is not installed")


def _cannot_start(why: str) -> int:
    print(f"visibility-api: {why}; to install the server with what it needs: {INSTALL}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
