"""Two real processes over rollout ring and policy snapshot; either is killed with SIGKILL."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import kill_roles
import kill_rollout_roles
import pytest
from kill_job import ENDLESS, KillJob, WaitUntil

from unilab_ipc.policy_snapshot import SnapshotReader
from unilab_ipc.rollout_ring import RolloutRing

pytestmark = [pytest.mark.e2e, pytest.mark.serial]


@pytest.fixture
def job(run_id: str, tmp_path: Path) -> Iterator[KillJob]:
    job = KillJob(kill_rollout_roles.__file__, kill_rollout_roles.TABLES, run_id, tmp_path)
    yield job
    job.close()


def check_what_is_left(job: KillJob, consumed: int | None) -> None:
    """Every rollout left is whole and the expected one; so is the newest policy."""
    ring = RolloutRing(job.segments["rollout_ring"])
    gauges = ring.gauges()
    assert 0 <= gauges["occupancy"] <= gauges["high_water_occupancy"] <= 2
    expected = int(gauges["release_sequence"])
    if consumed is not None:
        assert expected == consumed == gauges["published_sequence"]
    consumer = ring.consumer()
    while (slot := consumer.try_acquire()) is not None:
        assert (slot.seq, float(slot.reward[0, 0])) == (expected, float(expected))
        for array in (slot.obs, slot.critic_obs, slot.actions, slot.final_critic_obs):
            kill_roles.check(array.reshape(-1, array.shape[-1]))
        consumer.release()
        expected += 1
    assert expected == gauges["published_sequence"]
    snapshot = SnapshotReader(job.segments["policy_snapshot"]).try_fetch()
    assert snapshot is not None
    assert (snapshot.values == snapshot.version).all()


def test_without_faults_every_rollout_arrives_once(job: KillJob) -> None:
    job.start("collector", 1000)
    job.start("learner", 1000)
    for role in ("learner", "collector"):
        assert job.report(role)["dead"] in (None, kill_roles.OTHER[role])
    check_what_is_left(job, 1000)


@pytest.mark.parametrize(
    ("victim", "label"),
    [
        ("collector", "newest read"),
        ("collector", "half a copy"),
        ("collector", "slot written"),
        ("collector", "slot published"),
        ("learner", "cell retired"),
        ("learner", "half a cell written"),
        ("learner", "cell written"),
        ("learner", "snapshot published"),
        ("learner", "slot read"),
        ("learner", "slot released"),
    ],
)
def test_a_role_killed_at_a_protocol_step(job: KillJob, victim: str, label: str) -> None:
    job.start(kill_roles.OTHER[victim], ENDLESS)
    job.start(victim, ENDLESS, label, "50")
    report = job.survivor_report(victim)
    check_what_is_left(job, report["consumed"] if victim == "collector" else None)


@pytest.mark.parametrize("victim", ["collector", "learner"])
@pytest.mark.parametrize("seed", range(4))
def test_a_role_killed_at_a_random_moment(
    job: KillJob, victim: str, seed: int, wait_until: WaitUntil
) -> None:
    job.kill_at_random(victim, seed, wait_until)
    report = job.survivor_report(victim)
    check_what_is_left(job, report["consumed"] if victim == "collector" else None)


@pytest.mark.nightly
@pytest.mark.slow
def test_100_000_rollouts_with_pauses_on_either_side(job: KillJob) -> None:
    rng = random.Random(0)
    job.start("collector", 100_000)
    job.start("learner", 100_000)
    while job.children["learner"].poll() is None:
        # A reader or a writer that stands still for a moment, then goes on.
        paused = job.children[rng.choice(["collector", "learner"])]
        paused.send_signal(signal.SIGSTOP)
        time.sleep(rng.random() * 0.05)
        paused.send_signal(signal.SIGCONT)
        time.sleep(rng.random() * 0.2)
    assert job.report("learner")["consumed"] == 100_000
    assert job.children["learner"].returncode == 0
    check_what_is_left(job, 100_000)
