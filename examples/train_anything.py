"""A program that knows nothing of progress reports: it prints. Run it with

python -m trainjob_progress.run -- python examples/train_anything.py
"""

import math
import random

STEPS = 200_000
random.seed(0)
weight, bias = 0.0, 0.0
for step in range(1, STEPS + 1):
    x = random.uniform(-1, 1)
    error = weight * x + bias - (3 * x - 1 + random.gauss(0, 0.1))
    rate = 0.5 / math.sqrt(step)
    weight, bias = weight - rate * error * x, bias - rate * error
    if step % 10_000 == 0:
        print(f"step {step}/{STEPS} loss: {error**2:.5f} weight: {weight:.3f} bias: {bias:.3f}", flush=True)
