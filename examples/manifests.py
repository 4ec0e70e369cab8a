"""Writes each example's TrainJob beside it: `python examples/manifests.py`.

The script itself is in the manifest, so that `kubectl apply -f examples/train_pytorch.yaml` is all there
is to do. A real project has it in its image, and needs the last line of the command alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
REPORTER = "trainjob-progress"

# What an example needs beside the reporter, and the runtime that fits; any runtime would do on one node.
EXAMPLES = {
    "accelerate": ("accelerate scikit-learn torch", "torch-distributed"),
    "anything": ("", "torch-distributed"),
    "catboost": ("catboost scikit-learn", "torch-distributed"),
    "ignite": ("pytorch-ignite scikit-learn torch", "torch-distributed"),
    "jax": ("flax jax optax scikit-learn", "jax-distributed"),
    "keras": ("jax keras scikit-learn", "jax-distributed"),
    "lightgbm": ("lightgbm scikit-learn", "torch-distributed"),
    "lightning": ("lightning scikit-learn torch", "torch-distributed"),
    "paddle": ("paddlepaddle scikit-learn", "torch-distributed"),
    "pytorch": ("scikit-learn torch", "torch-distributed"),
    "sklearn": ("scikit-learn", "torch-distributed"),
    "torchtune": ("torch torchao==0.10.0 torchtune", "torch-distributed"),
    "transformers": ("accelerate torch transformers", "torch-distributed"),
    "trl": ("datasets scikit-learn torch trl", "torch-distributed"),
    "xgboost": ("scikit-learn xgboost", "xgboost-distributed"),
}

TEMPLATE = """\
# Written by examples/manifests.py from {script_name}.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef:
    name: {runtime}
  trainer:
    image: python:3.12
    numNodes: 1
    # No public index has trainjob-progress yet. Have the wheel of a release, or of `pip wheel ./reporter`
    # in a checkout, in your index or in the image (docs/instrument.md).
    command:
      - bash
      - -ec
      - |
        pip install --quiet {packages}
        cat > /tmp/train.py <<'END'
{script}
        END
        cd /tmp
        exec {command}
"""


def render(name: str) -> str:
    """The manifest of one example."""
    packages, runtime = EXAMPLES[name]
    script = (HERE / f"train_{name}.py").read_text().rstrip("\n")
    command = "python -m trainjob_progress.run -- python" if name == "anything" else "python"
    return TEMPLATE.format(
        name=f"train-{name}",
        runtime=runtime,
        packages=f"{REPORTER} {packages}".strip(),
        script_name=f"train_{name}.py",
        script="\n".join(f"        {line}" if line else "" for line in script.splitlines()),
        command=f"{command} /tmp/train.py",
    )


if __name__ == "__main__":
    for name in EXAMPLES:
        (HERE / f"train_{name}.yaml").write_text(render(name))
    sys.exit()
