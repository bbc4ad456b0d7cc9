"""A job without training: records as the contract says them, and a real registry entry with rings.

    records        pure builders, hand-chosen figures, for folding
    SyntheticJob   claims a registry folder, creates board and rings, writes records in real time

`python tests/unilab_monitor/synthetic_job.py --seconds 60` runs one to look at.
"""

import argparse
import math
import os
import random
import signal
import threading
import time
from pathlib import Path

from unilab_core.telemetry.records import CollectorReport, IterationReport, Note, RunInfo
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import create_segment
from unilab_ipc.metric_queue import RingWriter, ring_dims
from unilab_ipc.names import new_run_id, segment_name
from unilab_ipc.registry import JobFolder
from unilab_ipc.segments import HEARTBEAT, METRIC_QUEUE
from unilab_monitor.model import Batch, Model
from unilab_monitor.view import JobFacts, View

MS = 1_000_000
SECOND = 1_000_000_000

COLLECTOR_RING_BYTES = 1 << 20
LEARNER_RING_BYTES = 4 << 20

REWARD_TERMS = {
    "tracking_lin_vel": 0.612,
    "tracking_ang_vel": 0.148,
    "lin_vel_z": -0.031,
    "ang_vel_xy": -0.072,
    "base_height": -0.044,
    "action_rate": -0.021,
    "similar_to_default": -0.083,
    "contact": 0.195,
    "swing_feet_z": 0.42,
}


def run_info(**changes) -> RunInfo:
    facts = {
        "job": "go2-1",
        "algo": "sac",
        "task": "go2_joystick_flat",
        "sim": "mujoco",
        "run_dir": "/tmp/logs/sac/go2_joystick_flat/2026-11-29_22-40-00_mujoco",
        "device": "cpu",
        "num_gpus": 0,
        "max_iterations": 5000,
        "num_envs": 64,
        "batch_per_rank": 1024,
        "trainable_ns": 0,
    }
    return RunInfo(**{**facts, **changes})


def iteration(t_ns: int, number: int, **changes) -> IterationReport:
    """Phases of 0.1 + 0.6 + 0.2 + 0.1 + 1.0 + 18.0 = 20.0 ms of a 20.4 ms wall."""
    facts = {
        "t_ns": t_ns,
        "iteration": number,
        "env_steps": 64 * number,
        "wall_ms": 20.4,
        "accounted_ms": 20.0,
        "other_ms": 0.4,
        "learner": {
            "Perf/learner_collector_wait_ms": 0.1,
            "Perf/learner_inference_ms": 0.6,
            "Perf/learner_inference_h2d_ms": 0.1,
            "Perf/learner_inference_forward_ms": 0.4,
            "Perf/learner_inference_d2h_ms": 0.1,
            "Perf/learner_collector_release_ms": 0.2,
            "Perf/learner_replay_batch_wait_ms": 0.1,
            "Perf/learner_replay_sample_ms": 1.0,
            "Perf/learning_time": 0.018,
        },
        "metrics": {
            "Loss/actor": -3.217,
            "Loss/critic": 12.4,
            "Loss/temperature": 0.0312,
            "Loss/entropy": 4.81,
            "Policy/temperature": 0.0097,
            "Train/actor_gradient_norm": 0.412,
            "Train/critic_gradient_norm": 3.1,
            "Train/target_q_max": 31.7,
            "Train/target_q_min": -2.4,
            "Train/replay_ingress_depth": 2.0,
            "Train/replay_ingress_occupancy": 1.0,
            "Train/replay_ingress_high_water": 2.0,
            "Train/replay_ingress_backpressure_wait_ms": 0.0,
            "Train/replay_ingress_dropped_batches": 0.0,
        },
        "reward_mean": 4.2,
        "reward_best": 5.0,
        "rewards": {f"reward/{name}": value for name, value in REWARD_TERMS.items()},
        "episode_length": 213.0,
        "timeout_rate": 0.02,
        "steps_per_s": 3137.0,
        "rows_per_s": 50196.0,
        "buffer": 26368,
    }
    return IterationReport(**{**facts, **changes})


def collector(t_ns: int, tick: int, **changes) -> CollectorReport:
    """Phases of 0.3 + 15.0 + 3.5 + 0.5 + 0.6 + 0.1 = 20.0 ms of a 20.3 ms wall."""
    facts = {
        "rank": 0,
        "t_ns": t_ns,
        "tick": tick,
        "env_steps": 64 * tick,
        "timing": {
            "Perf/collector_inference_request_ms": 0.3,
            "Perf/collector_learner_action_wait_ms": 15.0,
            "Perf/collector_env_step_ms": 3.5,
            "Perf/collector_env_step_action_validate_ms": 0.05,
            "Perf/collector_env_step_apply_action_ms": 0.05,
            "Perf/collector_env_step_action_backend_ms": 0.1,
            "Perf/collector_env_step_backend_ms": 2.6,
            "Perf/collector_env_step_update_state_ms": 0.6,
            "Perf/collector_env_step_reset_done_ms": 0.1,
            "Perf/collector_transition_extract_ms": 0.5,
            "Perf/collector_replay_write_ms": 0.6,
            "Perf/collector_metrics_publish_ms": 0.1,
        },
        "cycle_ms": 20.0,
        "wall_ms": 20.3,
        "inference": {
            "Perf/collector_inference_queue_depth": 0,
            "Perf/collector_inference_in_flight": 1,
        },
        "episodes_completed": tick // 3,
        "timeouts": tick // 100,
        "mean_return": 4.2,
        "mean_length": 213.0,
        "rewards": {f"reward/{name}": value for name, value in REWARD_TERMS.items()},
        "terminations": {"Episode_Termination/tilt": 1.0},
        "terminations_total": {
            "Episode_Termination/tilt": float(tick // 3),
            "Episode_Termination/time_out": float(tick // 100),
        },
    }
    return CollectorReport(**{**facts, **changes})


def fold(*, learner=(), collector=(), now_ns: int, model: Model | None = None, **batch) -> View:
    """One batch of reports through a model."""
    return (model or Model()).fold(
        Batch(
            now_ns=now_ns,
            facts=batch.pop("facts", JobFacts(job="go2-1")),
            learner=[_raw(report, now_ns) for report in learner],
            collector=[_raw(report, now_ns) for report in collector],
            attached=batch.pop("attached", True),
            **batch,
        )
    )


def _raw(report: object, now_ns: int) -> object:
    if isinstance(report, RunInfo):
        return report.record(now_ns)
    return report.record() if hasattr(report, "record") else report


class SyntheticJob:
    """A live job of this process: the registry folder, the board and two rings."""

    def __init__(self, job: str, run_dir: Path, *, attachable: bool = True) -> None:
        self.job = job
        self.run_dir = run_dir
        self.run_id = new_run_id()
        self.folder = JobFolder.claim(job, {"run_dir": str(run_dir)})
        names = {
            kind: segment_name(self.run_id, kind, 0)
            for kind in ("heartbeat", "learner_metrics", "collector_metrics")
        }
        board = create_segment(HEARTBEAT, names["heartbeat"], board_dims(1))
        learner = create_segment(
            METRIC_QUEUE, names["learner_metrics"], ring_dims(LEARNER_RING_BYTES)
        )
        collector_ring = create_segment(
            METRIC_QUEUE, names["collector_metrics"], ring_dims(COLLECTOR_RING_BYTES)
        )
        self.segments = [board, learner, collector_ring]
        self.board = HeartbeatBoard(board)
        self.learner = RingWriter(learner)
        self.collector = RingWriter(collector_ring)
        self.beats = {
            role: self.board.role(role, 0) for role in ("launcher", "collector", "learner")
        }
        for beat in self.beats.values():
            beat.register()
        self.phases()
        facts = {
            "version": 1,
            "job": job,
            "run_id": self.run_id,
            "run_dir": str(run_dir),
            "algo": "sac",
            "task": "go2_joystick_flat",
            "sim": "mujoco",
        }
        rings = {
            "learner-0": {"name": names["learner_metrics"], "capacity_bytes": LEARNER_RING_BYTES},
            "collector-0": {
                "name": names["collector_metrics"],
                "capacity_bytes": COLLECTOR_RING_BYTES,
            },
        }
        self.folder.write_json(
            "launch.json", {**facts, "board": names["heartbeat"], "rings": rings, "ranks": 1}
        )
        self.record = {**facts, "processes": [], "segments": []}
        if attachable:
            self.folder.write_json("job.json", self.record)

    def phases(self) -> None:
        """Everybody is at work."""
        self.beats["launcher"].phase("training/supervise")
        self.beats["collector"].phase("training/learner_action_wait", awaits="learner")
        self.beats["learner"].phase("training/learner_update")

    def end(self, reason: str = "completed", exit_code: int = 0) -> None:
        """As the launcher ends a job: unlink, release."""
        self.unlink()
        self.folder.release(
            {
                "state": "ended",
                "reason": reason,
                "exit_code": exit_code,
                "run_dir": str(self.run_dir),
                "algo": "sac",
                "task": "go2_joystick_flat",
                "sim": "mujoco",
                "ended_utc": "2026-11-29T22:50:00+00:00",
                "started_utc": "2026-11-29T22:40:00+00:00",
                "pid": os.getpid(),
            }
        )

    def unlink(self) -> None:
        for segment in self.segments:
            segment.unlink()
            segment.close()
        self.segments = []


def play(
    job: SyntheticJob,
    seconds: float,
    *,
    period_s: float = 0.02,
    stop: threading.Event | None = None,
) -> None:
    """Write plausible records for a while; times wander, rewards rise."""
    stop = stop or threading.Event()
    rng = random.Random(1)
    start_s = time.monotonic()
    info = run_info(
        job=job.job, run_dir=str(job.run_dir), trainable_ns=time.monotonic_ns(), max_iterations=5000
    )
    number = 400
    next_info_s = 0.0
    while (now_s := time.monotonic() - start_s) < seconds:
        t_ns = time.monotonic_ns()
        if now_s >= next_info_s:
            job.learner.write(info.record(t_ns))
            next_info_s = now_s + 5.0
        number += 1
        learning_s = 0.018 * rng.uniform(0.9, 1.1)
        base = iteration(t_ns, number)
        wall_ms = 2.4 + 1000 * learning_s
        reward = 8.0 * (1.0 - math.exp(-now_s / 40.0)) + rng.gauss(0.0, 0.15)
        report = iteration(
            t_ns,
            number,
            wall_ms=wall_ms,
            accounted_ms=wall_ms - 0.4,
            learner={**base.learner, "Perf/learning_time": learning_s},
            metrics={
                **base.metrics,
                "Loss/critic": 12.4 * rng.uniform(0.7, 1.1),
                "Loss/actor": -3.2 + rng.gauss(0, 0.1),
            },
            reward_mean=reward,
            rewards={name: value * rng.uniform(0.95, 1.05) for name, value in base.rewards.items()},
            steps_per_s=64_000.0 / wall_ms,
            rows_per_s=1_024_000.0 / wall_ms,
            buffer=64 * number,
        )
        job.learner.write(report.record())
        base_tick = collector(t_ns, number)
        wait_ms = 15.0 * rng.uniform(0.9, 1.1)
        timing = {**base_tick.timing, "Perf/collector_learner_action_wait_ms": wait_ms}
        job.collector.write(
            collector(
                t_ns, number, timing=timing, cycle_ms=5.0 + wait_ms, wall_ms=5.3 + wait_ms
            ).record()
        )
        if number % 500 == 0:
            job.learner.write(
                Note(t_ns=t_ns, text=f"checkpoint saved at iteration {number}").record()
            )
        for beat in job.beats.values():
            beat.advance()
        if stop.wait(period_s):
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", default="go2-demo")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--period", type=float, default=0.02)
    parser.add_argument("--run-dir", type=Path, default=Path("/tmp/unilab-demo-run"))
    parser.add_argument("--stops", type=int, default=1, help="end at this many SIGINTs")
    args = parser.parse_args()
    over, received = threading.Event(), []

    def on_sigint(*_: object) -> None:
        received.append(1)
        print("SIGINT", flush=True)
        if len(received) >= args.stops:
            over.set()

    signal.signal(signal.SIGINT, on_sigint)
    job = SyntheticJob(args.job, args.run_dir)
    print("running", flush=True)
    try:
        play(job, args.seconds, period_s=args.period, stop=over)
    finally:
        stopped = over.is_set()
        job.end(reason="stopped by SIGINT" if stopped else "completed", exit_code=130 * stopped)


if __name__ == "__main__":
    main()
