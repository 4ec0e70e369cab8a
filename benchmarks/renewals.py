"""`python -m benchmarks.renewals`: certificates are renewed under load, behind a real kube-apiserver.

Two replicas renew theirs three times, and kube-apiserver's front proxy gets another CA. Meanwhile clients
read and watch. Exits with 1 if a request was lost, or a watch has ended. With
ten-minute certificates that takes 21 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.e2e.crds import Definitions
from tests.e2e.kube import find_binaries
from tests.e2e.manifests import apply_rights
from tests.e2e.real_cluster import RealCluster
from tests.e2e.renewal_drill import Installation, drill

RENEWALS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.renewals", description=__doc__)
    parser.add_argument("--lifetime", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--per-s", type=int, default=200, help="requests; a busy machine answers fewer")
    parser.add_argument("--watches", type=int, default=50)
    given = parser.parse_args()
    binaries, missing = find_binaries()
    if missing:
        parser.error(f"needs a real kube-apiserver: {'; '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        cluster = RealCluster(Path(directory) / "cluster", binaries, definitions=Definitions())
        apply_rights(cluster.admin)
        installation = Installation(cluster, Path(directory), lifetime_s=given.lifetime)
        try:
            installation.start()
            told = asyncio.run(
                drill(
                    cluster,
                    installation,
                    cluster.front_proxy,
                    seconds=RENEWALS * given.lifetime * 2 / 3 + 5,
                    renewals=RENEWALS,
                    per_s=given.per_s,
                    watches=given.watches,
                )
            )
            renewed = [
                each.log.read_text().count("serving certificate renewed") for each in installation.replicas
            ]
            if told.lost:
                for each in installation.replicas:
                    print(f"{each.name}: {each.log_tail(12_000)}")
        finally:
            installation.stop()
            cluster.stop()
    print(
        f"{told.elapsed_s:.0f} s, load {os.getloadavg()[0]:.0f}: {told.sent} requests"
        f" ({told.sent / told.elapsed_s:.0f} a second, the slowest {told.slowest_s:.1f} s),"
        f" {given.watches} watches\n"
        f"{len(told.certificates) - 1} new certificates, served by the replicas after {renewed} renewals;"
        f" the front proxy has another CA: {'yes' if told.has_rotated else 'no'}\n"
        f"lost: {dict(told.lost) or 'nothing'} {told.lost_at or ''}"
    )
    return 1 if told.lost else 0


if __name__ == "__main__":
    sys.exit(main())
