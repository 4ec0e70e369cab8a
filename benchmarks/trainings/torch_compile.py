"""torch.compile: a compilation for each of two lengths of the batch, a checkpoint after each 50 steps."""

import torch

from trainjob_progress import report

EPOCHS = 4
STEPS, CHECKPOINT = 50, "checkpoint.pt"

torch.manual_seed(0)
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True), 2
)
compiled = torch.compile(model, dynamic=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
with report(total_steps=EPOCHS * STEPS, total_epochs=EPOCHS) as r:
    for _ in range(EPOCHS):
        for step in range(STEPS):
            inputs = torch.randn(8, 64 if step % 25 < 20 else 48, 128)
            loss = (compiled(inputs) - inputs.roll(1, 1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            r.step(loss=loss)
        r.epoch()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, CHECKPOINT)
