"""What a data scientist runs: Open Data Hub's SDK starts a training with Hugging Face's Trainer.

Arguments: kubeconfig, namespace, runtime. Prints the job's name. The SDK puts its instrumentation and the
source of `train` into the TrainJob.
"""

import os
import sys

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import TrainerClient
from kubeflow.trainer.rhai import TransformersTrainer


def train() -> None:
    import time

    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            time.sleep(0.05)
            return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}

    data = [{"x": torch.rand(4), "labels": torch.rand(1)} for _ in range(64)]
    arguments = TrainingArguments(
        output_dir="out", max_steps=100_000, logging_steps=5, report_to=[], save_strategy="no", use_cpu=True
    )
    Trainer(model=Model(), args=arguments, train_dataset=data).train()


def main(kubeconfig: str, namespace: str, runtime: str) -> None:
    client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
    trainer = TransformersTrainer(
        func=train,
        metrics_poll_interval_seconds=5,
        # Pods of these tests are processes of this machine: this very Python is what they train with.
        env={"PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])},
    )
    print(client.train(runtime=client.get_runtime(runtime), trainer=trainer))


if __name__ == "__main__":
    main(*sys.argv[1:])
