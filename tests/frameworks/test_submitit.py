"""Jobs of submitit's own local executor: preempted by its signal, checkpointed, and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
    import os, shutil, signal, sys, time
    import submitit
    from trainjob_progress import report, termination
    termination.FLUSH_TIMEOUT_S = 60  # the last document comes however slow the machine is

    class Training(submitit.helpers.Checkpointable):
        def __init__(self, order):
            self.order, self.done, self.reporter = order, 0, None

        def __setstate__(self, state):  # submitit sets its handlers after it has loaded the job
            self.__dict__.update(state)
            if self.done:  # before the new reporter writes its first document
                shutil.copy("document.json", "preempted.json")
            if os.environ.get("SUBMITIT_EXECUTOR") and self.order == "before":
                self.reporter = report(total_steps=6, initial_step=self.done)

        def __call__(self):
            if self.order == "after":
                self.reporter = report(total_steps=6, initial_step=self.done)
            with self.reporter as r:
                while self.done < 6:
                    while not r.is_due:
                        time.sleep(0.01)
                    r.step(loss=1.0)
                    self.done += 1
                    if self.done == 2:
                        os.kill(os.getpid(), signal.SIGTERM)  # submitit goes on after this one
                    if self.done == 3:
                        os.kill(os.getpid(), signal.SIGUSR2)  # as Slurm does
            return self.done

        def checkpoint(self):
            return submitit.helpers.DelayedSubmission(self)

    if __name__ == "__main__":
        executor = submitit.LocalExecutor("jobs")
        executor.update_parameters(timeout_min=60)
        job = executor.submit(Training(sys.argv[1]))
        print(job.results(), job.stderr())
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_job_is_preempted_checkpointed_and_goes_on_where_it_was(tmp_path: Path, order: str) -> None:
    """Its handlers of SIGUSR2, SIGTERM and SIGCONT run, whether report() came before or after them."""
    pytest.importorskip("submitit")
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT / "reporter"),
        "TRAINJOB_PROGRESS_FILE": str(tmp_path / "document.json"),
    }  # fmt: skip
    result = subprocess.run(
        [sys.executable, "train.py", order], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=400,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[6]" in result.stdout, result.stdout
    assert "Bypassing signal SIGTERM" in result.stdout
    assert "this job is preempted" in result.stdout
    first, last = (json.loads((tmp_path / name).read_bytes()) for name in ("preempted.json", "document.json"))
    assert (first["state"], first["ending"], first["step"]) == ("running", "preempted", 3)
    assert (last["state"], last["ending"], last["step"]) == ("completed", "finished", 6)
