"""`python -m visibility_api` is `visibility-api`."""

import sys

from visibility_api.cli import main

sys.exit(main())
