"""Two real processes over slot, ingress and metric ring; either is killed with SIGKILL.

Deterministically at each protocol step, and at random moments. Afterwards the survivor must have
named the dead peer, and what is left in the memory must be whole, in order, exactly once.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kill_roles
import pytest

from unilab_ipc.doorbell import Doorbell
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import Segment, create_segment, open_segment
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.names import segment_name
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.segments import HEARTBEAT, INFERENCE_SLOT, METRIC_QUEUE, REPLAY_INGRESS

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

ENDLESS = 10**9
WAIT_S = 120


@dataclass
class Job:
    """Segments and bells of one trial, made by the test as the launcher would."""

    run_id: str
    bells: Path
    segments: dict[str, Segment]
    children: dict[str, subprocess.Popen[str]]

    def start(self, role: str, ticks: int, *kill_at: str) -> None:
        self.children[role] = subprocess.Popen(
            [
                sys.executable,
                kill_roles.__file__,
                role,
                self.run_id,
                str(self.bells),
                str(ticks),
                *kill_at,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def progress(self, role: str) -> int:
        return HeartbeatBoard(self.segments["heartbeat"]).row(role, 0).progress

    def report(self, role: str) -> dict[str, object]:
        output, _ = self.children[role].communicate(timeout=WAIT_S)
        return json.loads(output)

    def check_what_is_left(self, consumed: int | None) -> None:
        """Drain the ingress as a new consumer; every slot must be whole and the expected one."""
        ring = ReplayIngress(self.segments["replay_ingress"])
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
        name = segment_name(self.run_id, "collector_metrics", 0)
        reader = RingReader(open_segment(METRIC_QUEUE, name, kill_roles.METRIC_DIMS, readonly=True))
        ticks = [record["tick"] for record in reader.read(10_000)]
        assert reader.invalid_count == 0
        assert ticks == list(range(ticks[0], ticks[-1] + 1)) if ticks else True


@pytest.fixture
def job(run_id: str, tmp_path: Path) -> Iterator[Job]:
    tables = {
        "heartbeat": (HEARTBEAT, board_dims(1)),
        "inference_slot": (INFERENCE_SLOT, kill_roles.SLOT_DIMS),
        "replay_ingress": (REPLAY_INGRESS, kill_roles.INGRESS_DIMS),
        "collector_metrics": (METRIC_QUEUE, kill_roles.METRIC_DIMS),
    }
    segments = {
        kind: create_segment(layout, segment_name(run_id, kind, 0), dims)
        for kind, (layout, dims) in tables.items()
    }
    bells = [Doorbell.create(tmp_path / f"{role}-0.bell") for role in kill_roles.OTHER]
    job = Job(run_id, tmp_path, segments, {})
    yield job
    for child in job.children.values():
        if child.poll() is None:
            child.kill()
        child.communicate()
    for segment in segments.values():
        segment.unlink()
        segment.close()
    for bell in bells:
        bell.close()


def check_death(job: Job, victim: str) -> None:
    survivor = kill_roles.OTHER[victim]
    report = job.report(survivor)
    assert job.children[victim].wait(timeout=WAIT_S) == -signal.SIGKILL
    assert job.children[survivor].returncode == 10
    assert (report["dead"], report["pid"]) == (victim, job.children[victim].pid)
    job.check_what_is_left(int(str(report["consumed"])) if survivor == "learner" else None)


def test_without_faults_every_transition_arrives_once(job: Job) -> None:
    job.start("collector", 2000)
    job.start("learner", 2000)
    for role in ("learner", "collector"):
        assert job.report(role)["dead"] in (None, kill_roles.OTHER[role])
    assert ReplayIngress(job.segments["replay_ingress"]).gauges()["release_sequence"] == 2000
    job.check_what_is_left(2000)


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
def test_a_role_killed_at_a_protocol_step(job: Job, victim: str, label: str) -> None:
    job.start(kill_roles.OTHER[victim], ENDLESS)
    job.start(victim, ENDLESS, label, "200")
    check_death(job, victim)


@pytest.mark.parametrize("victim", ["collector", "learner"])
@pytest.mark.parametrize("seed", range(5))
def test_a_role_killed_at_a_random_moment(
    job: Job, victim: str, seed: int, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    rng = random.Random(f"{victim}-{seed}")
    job.start("collector", ENDLESS)
    job.start("learner", ENDLESS)
    target = rng.randrange(1, 400)
    wait_until(lambda: job.progress(victim) >= target)
    job.children[victim].send_signal(signal.SIGKILL)
    check_death(job, victim)


@pytest.mark.parametrize("role", ["collector", "learner"])
def test_a_pause_is_not_a_death_and_loses_nothing(
    job: Job, role: str, wait_until: Callable[[Callable[[], bool]], None]
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
    job.check_what_is_left(1500)
