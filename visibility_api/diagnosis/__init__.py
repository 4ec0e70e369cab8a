"""Why a job stands still: what its pods print of their ranks, read as hostile bytes, grouped and judged."""
