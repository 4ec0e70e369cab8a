"""A CA that no fuzzed certificate is of."""

from __future__ import annotations

import trustme

from visibility_api.auth.certificates import CaPool

POOL = CaPool(trustme.CA().cert_pem.bytes().decode(), name="client")
