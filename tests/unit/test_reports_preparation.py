"""What is read of an initializer's log: as huggingface_hub prints it, and as strangers might."""

from __future__ import annotations

import pytest

from visibility_api.reports.preparation import preparation

# What Kubeflow Trainer's dataset initializer logs and what huggingface_hub 2.4 was recorded to draw, as the
# kubelet hands it out: a bar that is redrawn ends no line, so what is logged stands right behind it.
RECORDED = """\
2026-11-22T20:09:55.101000000Z 2026-11-22T20:09:55Z INFO     [__main__.py:19] Starting dataset initialization
2026-11-22T20:09:55.102000000Z 2026-11-22T20:09:55Z INFO     [huggingface.py:32] Downloading dataset: a/b
2026-11-22T20:09:55.103000000Z 2026-11-22T20:09:55Z INFO     [huggingface.py:33] ----------------------------
2026-11-22T20:09:55.300000000Z \rFetching 12 files:   0%|          | 0/12 [00:00<?, ?it/s]\
2026-11-22T20:09:55Z INFO     [_client.py:1079] HTTP Request: HEAD http://h/a/b/f "HTTP/1.1 200 OK"
2026-11-22T20:09:55.900000000Z \rFetching 12 files:  33%|███▎      | 4/12 [00:00<00:00, 16.94it/s]\
2026-11-22T20:09:56Z INFO     [_client.py:1079] HTTP Request: HEAD http://h/a/b/g "HTTP/1.1 200 OK"
2026-11-22T20:09:58.100000000Z \rFetching 12 files:  50%|█████     | 6/12 [00:00<00:00,  8.35it/s]\
\rFetching 12 files:  58%|█████▊    | 7/12 [00:02<00:02,  2.32it/s]\
\rFetching 12 files: 100%|██████████| 12/12 [00:04<00:00,  2.07it/s]
2026-11-22T20:10:00.100000000Z 2026-11-22T20:10:00Z INFO     [huggingface.py:46] Dataset has been downloaded
"""


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("-------", None),
        ("0/12", "Fetching 12 files 0 % (0/12)"),
        ("4/12", "Fetching 12 files 33 % (4/12)"),
        ("7/12", "Fetching 12 files 58 % (7/12)"),
        ("downloaded", "Fetching 12 files 58 % (7/12)"),
    ],
)
def test_a_download_is_as_far_as_its_bar_of_files(until: str, said: str | None) -> None:
    # Cut at the end of a drawing, as 16 KiB or a line end cuts what a container runtime writes down.
    end = RECORDED.index(until) + len(until)
    end = RECORDED.find("]", end) + 1 if "/" in until else end
    log = RECORDED[:end]
    if until == "downloaded":
        log = log.replace("100%|██████████| 12/12", "")
    assert preparation(log.encode()) == said


def test_a_finished_bar_gives_way_to_what_is_drawn_next() -> None:
    assert preparation(RECORDED.encode()) is not None
    files = "\rFetching 2 files: 100%|██████████| 2/2 [00:04<00:00,  2.07it/s]\n"
    shards = "\rGenerating train split:  45%|████▌     | 450/1000 [00:02<00:03, 5.41 examples/s]"
    assert preparation(files.encode()) == "Fetching 2 files 100 % (2/2)"
    assert preparation((files + shards).encode()) == "Generating 45 % (450/1000)"


def test_the_bar_of_files_counts_more_than_those_of_each_file() -> None:
    log = (
        "\rFetching 2 files:  50%|█████     | 1/2 [00:04<00:04,  2.07it/s]\n"
        "\rDownloading shards:  10%|█         | 1/10 [00:02<00:03, 5.41it/s]\n"
        "model.safetensors:  43%|████▎     | 2.15G/4.98G [00:12<00:15, 181MB/s]\n"
    )
    assert preparation(log.encode()) == "Fetching 2 files 50 % (1/2)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hunter2:  45%|████      | 9/20 [00:02<00:03, 5.41it/s, token=hunter2]", "45 % (9/20)"),
        ("Loading hunter2:  45%|████      | 9/20 [00:02<00:03]", "Loading 45 % (9/20)"),
        ("\x1b[31mFetching 20 files:\x1b[0m  45%|███| 9/20 [00:02<00:03]", "Fetching 20 files 45 % (9/20)"),
        ("Fetching 7 files hunter2:  45%|███| 9/20 [00:02<00:03]", "Fetching 20 files 45 % (9/20)"),
        ("\u202e\u200bhunter2:  45%|███| 9/20 [00:02<00:03]", "45 % (9/20)"),
        ("  0%|          | 0/0 [00:00<?, ?it/s]", None),
        ("150%|██████████| 30/20 [00:02<00:03]", None),
        ("x" * 9000 + "Fetching 20 files:  45%|███| 9/20 [00:02<00:03]", None),
        ("hunter2 is 45% of 9/20", None),
        ("hunter2", None),
        ("", None),
    ],
)
def test_only_counts_and_words_of_ours_come_out(line: str, said: str | None) -> None:
    assert preparation(line.encode()) == said


def test_what_is_not_text_and_what_is_long_ago_is_no_progress() -> None:
    assert preparation(b"\xff\xfe\x00" * 10) is None
    bar = b"\rFetching 20 files:  45%|###| 9/20 [00:02<00:03]\n"
    assert preparation(bar + b"one of many lines\n" * 10_000) is None
    assert preparation(b"one of many lines\n" * 10_000 + bar) == "Fetching 20 files 45 % (9/20)"
