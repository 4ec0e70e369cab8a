"""`python -m localcluster.demo [--keep]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

import structlog

from localcluster import demo
from localcluster.demo.scenario import DEADLINE_S, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localcluster.demo", description=demo.__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running until Ctrl-C")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        return asyncio.run(run(keep=arguments.keep))
    except BrokenPipeError:  # `make demo | head`: nobody reads any more, and the cluster has stopped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return 141  # 128 + SIGPIPE, as any other program in a pipe
    except TimeoutError:
        print(f"\nthe demo did not end within {DEADLINE_S}s: the machine is very busy", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
