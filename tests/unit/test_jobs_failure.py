"""Which of several failures came first, and what stays known of it."""

from __future__ import annotations

from itertools import permutations

from msgspec.structs import replace

from tests.jobs import JOB, rank0
from visibility_api.jobs.failure import Failure, first_of
from visibility_api.jobs.job import Phase

from .bench import Bench, at


def failure(
    replica: str = "node-0", *, s: float = 100, since: float | None = 0, reason: str = "Error"
) -> Failure:
    return Failure(
        at=at(s),
        since=at(since) if since is not None else None,
        replica=replica,
        pod_name=f"bert-{replica}",
        exit_code=137 if reason == "OOMKilled" else 1,
        reason=reason,
        message=f"{replica} failed.",
    )


def of_job(reason: str = "FailedJobs", *, s: float = 110) -> Failure:
    return Failure(at=at(s), reason=reason, message="The job failed.", is_of_job=True)


def shown(*failures: Failure, started_s: float | None = None) -> set[str]:
    """What is shown in the end, whatever comes first to our notice."""
    found = set()
    for order in permutations(failures):
        held = None
        for each in order:
            held = first_of(held, each, started_at=at(started_s) if started_s is not None else None)
        assert held is not None
        found.add(held.replica or held.reason)
    return found


def test_what_failed_first_counts() -> None:
    assert shown(failure("node-0", s=130), failure("node-3", s=100), failure("node-7", s=105)) == {"node-3"}


def test_at_one_time_what_explains_more_counts() -> None:
    """The others notice within a second that a peer is gone, and their nodes' clocks differ."""
    assert shown(failure("node-0", s=99), failure("node-3", s=100, reason="OOMKilled")) == {"node-3"}
    assert shown(failure("node-0", s=90), failure("node-3", s=100, reason="OOMKilled")) == {"node-0"}


def caused(found: Failure, name: str) -> Failure:
    return replace(found, cause_class=name, cause="It is so.", is_cascade=name == "PeerLost")


def test_a_sign_of_another_s_failure_does_not_hide_the_root() -> None:
    """A rank that has failed may end after those that lost it."""
    lost = caused(failure("node-0", s=100), "PeerLost")
    assert shown(lost, caused(failure("node-3", s=130), "FileMissing")) == {"node-3"}
    assert shown(lost, failure("node-3", s=130)) == {"node-3"}
    assert shown(lost, failure("node-3", s=300)) == {"node-0"}


def test_a_cause_stays_known_when_the_same_failure_is_seen_again() -> None:
    for name in ("PeerLost", "FileMissing"):
        held = caused(failure(), name)
        for order in ((held, failure()), (failure(), held)):
            assert first_of(*order).cause_class == name


def test_a_node_is_lost_before_it_counts_as_lost() -> None:
    assert shown(failure("node-0", s=100), failure("node-3", s=400, reason="NodeLost")) == {"node-3"}


def test_a_later_run_that_fails_is_another_failure() -> None:
    assert shown(failure("node-3", s=100, reason="OOMKilled"), failure("node-0", s=900, since=130)) == {
        "node-0"
    }
    # Of a replica that was not restarted itself.
    earlier, later = failure("node-0", s=100), failure("node-3", s=900, since=0)
    assert shown(earlier, later, started_s=130) == {"node-3"}
    assert shown(earlier, later) == {"node-0"}


def test_the_job_fails_by_its_pods_or_by_its_deadline() -> None:
    assert shown(failure("node-3"), of_job()) == {"node-3"}
    assert shown(failure("node-3"), of_job("DeadlineExceeded")) == {"DeadlineExceeded"}
    assert shown(of_job()) == {"FailedJobs"}
    # Made again at once, as kubelets do, before the Job counted the restart.
    assert shown(failure("node-3", s=100), of_job(s=104), started_s=101) == {"node-3"}
    # It trained on for hours, and what failed then was not seen.
    assert shown(failure("node-3", s=100), of_job(s=9000), started_s=101) == {"FailedJobs"}


def failed(found: Failure | None, **more: object) -> Bench:
    bench = Bench()
    bench.job(JOB)
    bench.report(450, metrics=(("lr", "1"), ("loss", "2.31")), message="warming up")
    bench.job(replace(JOB, failure=found, **more))
    return bench


def test_a_failure_is_shown_with_what_the_run_had_reported() -> None:
    bench = failed(failure(s=10))
    assert bench.last.failure is not None
    assert bench.last.failure.reached == "It had reported step 450 of 1000, loss 2.31: warming up."


def test_it_stays_when_the_pod_is_gone_and_the_next_attempt_reports() -> None:
    bench = failed(failure(s=10))
    held = bench.last.failure
    bench.advance(200)
    bench.job(replace(JOB, rank0=None))
    assert bench.last.failure == held
    bench.job(replace(JOB, rank0=rank0(pod_uid="p2", started_at=bench.now)))
    bench.report(7, attempt="p2/0/0")
    assert bench.last.step == 7
    assert bench.last.failure == held


def test_a_worker_that_failed_before_rank_0_takes_its_place() -> None:
    bench = failed(failure("node-0", s=20))
    bench.tracker.failed(JOB.ref, failure("node-3", s=10, reason="OOMKilled"))
    assert bench.last.failure is not None
    assert bench.last.failure.replica == "node-3"
    bench.job(replace(JOB, failure=failure("node-0", s=20), phase=Phase.FAILED))
    assert bench.last.failure.replica == "node-3"


def test_a_failure_of_a_job_that_is_gone_matters_to_nobody() -> None:
    bench = Bench()
    bench.tracker.failed(JOB.ref, failure())
    assert bench.published == []


def test_it_is_known_after_a_restart() -> None:
    bench = failed(failure("node-3", s=10, reason="OOMKilled"))
    later = bench.heir()
    later.job(replace(JOB, rank0=None))
    assert later.last.failure == bench.last.failure


def test_a_job_whose_time_was_over_before_its_image_came_says_so() -> None:
    waits = rank0(is_running=False, started_at=None, waiting_reason="ImagePullBackOff")
    bench = Bench()
    bench.job(replace(JOB, phase=Phase.INITIALIZING, rank0=waits))
    for _ in range(2):
        bench.job(replace(JOB, phase=Phase.FAILED, rank0=None, failure=of_job("DeadlineExceeded")))
    assert bench.last.failure is not None
    assert bench.last.failure.message == "The job failed. Rank 0 had not started: ImagePullBackOff."


# --- a peer that is restarted alone


OOM, AGAIN = failure("node-1", s=600, reason="OOMKilled"), failure("node-1", s=900, since=601)


def test_a_peer_that_waits_in_vain_for_the_others_does_not_hide_why_it_failed_first() -> None:
    """Its container is started again, and rank 0 hangs where it was."""
    assert first_of(OOM, AGAIN, started_at=at(0)) == OOM
    assert first_of(OOM, AGAIN, started_at=at(650)) == AGAIN, "rank 0 was started again as well"
    assert first_of(OOM, AGAIN) == AGAIN, "nothing is known of rank 0"
    much_later = failure("node-1", s=9000, since=601)
    assert first_of(OOM, much_later, started_at=at(0)) == much_later


def test_a_run_that_has_reported_since_has_gone_on_without_a_restart_of_rank_0() -> None:
    bench = Bench()
    bench.job(replace(JOB, rank0=rank0(started_at=at(0))))
    bench.now = at(600)
    bench.report(10)
    bench.tracker.failed(JOB.ref, OOM)
    bench.now = at(900)
    bench.tracker.failed(JOB.ref, AGAIN)
    assert bench.last.failure is not None
    assert bench.last.failure.reason == "OOMKilled"
    bench.report(20)
    later = failure("node-1", s=1500, since=901)
    bench.now = at(1500)
    bench.tracker.failed(JOB.ref, later)
    assert bench.last.failure is not None
    assert bench.last.failure.at == later.at
