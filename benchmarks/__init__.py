"""What this server costs, as ratios measured side by side in one run. `make bench` runs all of it."""
