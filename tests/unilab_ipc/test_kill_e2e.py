"""Two real processes over slot, ingress and metric ring; either is killed with SIGKILL.

Deterministically at each protocol step, and at random moments. Afterwards the survivor must have
named the dead peer, and what is left in the memory must be whole, in order, exactly once.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import kill_roles
import pytest
from kill_job import ENDLESS, KillJob, WaitUntil

from unilab_ipc.memory import open_segment
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.names import segment_name
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.segments import METRIC_QUEUE

pytestmark = [pytest.mark.e2e, pytest.mark.serial]


@pytest.fixture
def job(run_id: str, tmp_path: Path) -> Iterator[KillJob]:
    job = KillJob(kill_roles.__file__, kill_roles.TABLES, run_id, tmp_path)
    yield job
    job.close()


def check_what_is_left(job: KillJob, consumed: int | None) -> None:
    """Drain the ingress as a new consumer; every slot must be whole and the expected one."""
    ring = ReplayIngress(job.segments["replay_ingress"])
    gauges = ring.gauges()
    assert 0 <= gauges["occupancy"] <= 2
    expected = int(gauges["release_sequence"])
    if consumed is not None:
        # A living consumer has taken everything: nothing is left, nothing came twice.
        assert expected == consumed == gauges["published_sequence"]
    consumer = ring.consumer()
    while (views := consumer.try_acquire()) is not None:
        assert (views.seq, float(views.reward[0])) == (expected, float(expected))
        for array in (views.obs, views.next_obs, views.critic_obs, views.action):
            kill_roles.check(array)
        consumer.release()
        expected += 1
    assert expected == gauges["published_sequence"]
    name = segment_name(job.run_id, "collector_metrics", 0)
    reader = RingReader(open_segment(METRIC_QUEUE, name, kill_roles.METRIC_DIMS, readonly=True))
    ticks = [record["tick"] for record in reader.read(10_000)]
    assert reader.invalid_count == 0
    assert ticks == list(range(ticks[0], ticks[-1] + 1)) if ticks else True


def check_death(job: KillJob, victim: str) -> None:
    report = job.survivor_report(victim)
    check_what_is_left(job, report["consumed"] if victim == "collector" else None)


def test_without_faults_every_transition_arrives_once(job: KillJob) -> None:
    job.start("collector", 2000)
    job.start("learner", 2000)
    for role in ("learner", "collector"):
        assert job.report(role)["dead"] in (None, kill_roles.OTHER[role])
    assert ReplayIngress(job.segments["replay_ingress"]).gauges()["release_sequence"] == 2000
    check_what_is_left(job, 2000)


@pytest.mark.parametrize(
    ("victim", "label"),
    [
        ("collector", "request published"),
        ("collector", "slot written"),
        ("collector", "slot published"),
        ("collector", "oldest retired"),
        ("collector", "head stored"),
        ("collector", "body stored"),
        ("learner", "answer written"),
        ("learner", "answer published"),
        ("learner", "slot read"),
        ("learner", "slot released"),
    ],
)
def test_a_role_killed_at_a_protocol_step(job: KillJob, victim: str, label: str) -> None:
    job.start(kill_roles.OTHER[victim], ENDLESS)
    job.start(victim, ENDLESS, label, "200")
    check_death(job, victim)


@pytest.mark.parametrize("victim", ["collector", "learner"])
@pytest.mark.parametrize("seed", range(5))
def test_a_role_killed_at_a_random_moment(
    job: KillJob, victim: str, seed: int, wait_until: WaitUntil
) -> None:
    job.kill_at_random(victim, seed, wait_until)
    check_death(job, victim)


@pytest.mark.parametrize("role", ["collector", "learner"])
def test_a_pause_is_not_a_death_and_loses_nothing(
    job: KillJob, role: str, wait_until: WaitUntil
) -> None:
    job.start("collector", 1500)
    job.start("learner", 1500)
    for target in (100, 600):
        wait_until(lambda target=target: job.progress(role) >= target)
        job.children[role].send_signal(signal.SIGSTOP)
        other = kill_roles.OTHER[role]
        last = -1

        def has_come_to_rest(other: str = other) -> bool:
            nonlocal last
            before, last = last, job.progress(other)
            return before == last

        wait_until(has_come_to_rest)
        assert job.children[other].poll() is None
        job.children[role].send_signal(signal.SIGCONT)
    job.report("learner")
    assert job.children["learner"].returncode == 0
    check_what_is_left(job, 1500)
