"""Generated trace directories: the worked set of the documentation, and runs of any size.

`python -m unilab_core.telemetry.rl_trace.demo_trace ROOT --events 2000000 --shards 200` writes one
for a look at the monitor or for measurements.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from unilab_core.telemetry.rl_trace import formats
from unilab_core.telemetry.rl_trace.formats import LineStyle
from unilab_core.telemetry.rl_trace.trajectory_record import (
    TrajectoryRecord,
    TurnRecord,
    trajectory_line,
)

_START = (
    ("ROLLOUT_DISPATCH", "dispatched", "PPOTrainerV1", "AgentLoopWorker"),
    ("ROLLOUT_START", "agent_started", "AgentLoopWorker", "AgentLoopWorker"),
    ("ROLLOUT_GENERATE", "generation_started", "AgentLoopWorker", "RolloutReplica"),
    ("ROLLOUT_GENERATE", "generation_finished", "RolloutReplica", "AgentLoopWorker"),
    ("ROLLOUT_FINISH", "rollout_finished", "AgentLoopWorker", "PPOTrainerV1"),
)
_SCORE = (
    "ROLLOUT_REWARD",
    "reward_score_computed_score=0.5",
    "RewardLoopWorker",
    "AgentLoopWorker",
)
TRAIN_EVENTS = (
    ("BUFFER_SAMPLE", "sampled_from_replay_buffer", "ReplayBuffer", "PPOTrainerV1"),
    ("TRAIN_LOGPROB", "old_log_prob_computed", "ActorRolloutWorker", "PPOTrainerV1"),
    ("TRAIN_REF_LOGPROB", "ref_log_prob_computed", "ActorRolloutWorker", "PPOTrainerV1"),
    ("TRAIN_ADVANTAGE", "advantage_computed", "PPOTrainerV1", "PPOTrainerV1"),
    ("TRAIN_UPDATE", "actor_parameters_updated", "ActorRolloutWorker", "PPOTrainerV1"),
)
WORKED_TIMES_MS = {
    "u1/0": (100, 300, 500, 4500, 4700, 5000, 9000, 9500, 9900, 10000, 14000),
    "u1/1": (100, 400, 700, 6700, 6800, 7200, 9000, 9500, 9900, 10000, 14000),
    "u2/0": (120, 420, 820, 8820, 8900, 9400),
    "u2/1": (120, 420, 820, 3000),
}
"""Milliseconds after the prompts were generated; the events are in the order above."""
EVENTS_PER_TRAJECTORY = 13
TRAJECTORIES_PER_STEP = 256


def worked_rows(start_ms: int, job_id: str = "j") -> list[str]:
    """Rows of the worked set: two prompts, four trajectories, two of them trained."""
    rows = [prompt_row(job_id, uid, start_ms, 1) for uid in ("u1", "u2")]
    for sample_id, times in WORKED_TIMES_MS.items():
        events = (*_START, _SCORE, *TRAIN_EVENTS)[: len(times)]
        rows += event_rows(job_id, sample_id, events, [start_ms + one for one in times], 1)
    rows.append(sync_row(job_id, start_ms + 14500, 1))
    return rows


def generate(
    root: Path,
    *,
    num_events: int,
    num_shards: int,
    start_ms: int,
    trajectories_per_step: int = TRAJECTORIES_PER_STEP,
    num_texts: int = 2_000,
    seed: int = 0,
) -> None:
    """A run of `num_events` rows in `num_shards` files, its progress lines and some trajectories.

    One prompt has four trajectories, one trajectory about 13 rows (two rounds); the last step's
    trajectories are unfinished.
    """
    rng = random.Random(seed)
    for folder in (formats.PROGRESS_DIR, formats.SAMPLE_DIR, formats.TRAJECTORY_DIR):
        (root / folder).mkdir(parents=True, exist_ok=True)
    names = [formats.sample_file_name(f"node{i // 8:02d}", 1000 + i) for i in range(num_shards)]
    streams = [open(root / formats.SAMPLE_DIR / name, "w", 1 << 18) for name in names]  # noqa: SIM115
    texts: list[str] = []
    steps = max(num_events // (EVENTS_PER_TRAJECTORY * trajectories_per_step), 1)
    try:
        for step in range(1, steps + 1):
            at_ms = start_ms + (step - 1) * 30_000
            for prompt in range(trajectories_per_step // 4):
                uid = f"{step:06x}-{prompt:04x}-7e51"
                stream = streams[rng.randrange(num_shards)]
                stream.write(prompt_row("demo-job", uid, at_ms, step))
                for index in range(4):
                    times = random_times(rng, at_ms)
                    last = step == steps and index > 1
                    events = (*two_rounds(rng), *TRAIN_EVENTS)
                    kept = rng.randrange(2, 8) if last else len(events)
                    stream.writelines(
                        event_rows("demo-job", f"{uid}/{index}", events[:kept], times, step)
                    )
                    if not last and len(texts) < num_texts:
                        texts.append(trajectory_text(rng, uid, index, step, times))
            streams[0].write(sync_row("demo-job", at_ms + 29_500, step))
    finally:
        for stream in streams:
            stream.close()
    name = formats.trajectory_file_name(1000, start_ms)
    (root / formats.TRAJECTORY_DIR / name).write_text("".join(texts), encoding="utf-8")
    _write_progress(root, steps, start_ms)


def two_rounds(rng: random.Random) -> tuple[tuple[str, str, str, str], ...]:
    """The events of a rollout with two rounds, its score included."""
    score = f"reward_score_computed_score={rng.random():.4f}"
    return (*_START[:4], *_START[2:], (_SCORE[0], score, *_SCORE[2:]))


def random_times(rng: random.Random, at_ms: int) -> list[int]:
    """Thirteen times of a trajectory whose prompt was generated at `at_ms`."""
    steps_ms = (50, 200, 100, 2000, 500, 3000, 100, 300, 6000, 500, 300, 50, 4000)
    times, now = [], float(at_ms)
    slow = 6.0 if rng.random() < 0.02 else 1.0
    for length in steps_ms:
        now += length * (0.5 + rng.random()) * (slow if length > 1000 else 1.0)
        times.append(int(now))
    return times


def event_rows(
    job_id: str,
    sample_id: str,
    events: tuple[tuple[str, str, str, str], ...],
    times: list[int],
    step: int,
) -> Iterator[str]:
    """Rows of a trajectory, as many as there are events."""
    for (stage, detail, source, target), unix_ms in zip(events, times, strict=False):
        status = "COMPLETE" if stage == "TRAIN_UPDATE" else "RUNNING"
        content = f"from={source}|to={target}|stage={stage}|global_step={step}|detail={detail}"
        yield f"{job_id},sample,{sample_id},{status},{unix_ms},{content}\n"


def prompt_row(job_id: str, uid: str, unix_ms: int, step: int) -> str:
    """The row that a prompt was generated."""
    content = f"from=DataLoader|to=PPOTrainerV1|stage=DATA_PREPROCESS|global_step={step}"
    return f"{job_id},sample,{uid}/sample,RUNNING,{unix_ms},{content}|detail=uid_generated\n"


def sync_row(job_id: str, unix_ms: int, step: int) -> str:
    """The row that weights are in use."""
    content = f"from=CheckpointEngineManager|to=RolloutReplica|stage=SYNC_PARAMS|global_step={step}"
    detail = f"weights_synced_global_step={step}"
    return f"{job_id},sample,*/sample,RUNNING,{unix_ms},{content}|detail={detail}\n"


def trajectory_text(rng: random.Random, uid: str, index: int, step: int, times: list[int]) -> str:
    """The line of a finished trajectory, with its line break."""
    rounds = ((times[2], times[3], times[4]), (times[4], times[5], times[6]))
    turns = [
        TurnRecord(
            prompt_token_count=80 + 200 * number,
            completion_text=f"Look up part {number + 1} with the search tool.",
            completion_token_count=rng.randrange(20, 400),
            finish_reason="stop",
            observation_text=json.dumps({"found": rng.randrange(9)}),
            start_ts=start / 1000.0,
            end_ts=end / 1000.0,
            completion_time_ms=float(middle - start),
            observation_time_ms=float(end - middle),
            queue_time_ms=(middle - start) * 0.05,
            ttft_ms=(middle - start) * 0.1,
            prefill_ms=(middle - start) * 0.05,
            decode_time_ms=(middle - start) * 0.8,
            tool_calls=[{"name": "search", "args": {"q": number}, "ok": True, "ms": end - middle}],
        )
        for number, (start, middle, end) in enumerate(rounds)
    ]
    record = TrajectoryRecord(
        prompt_uid=uid,
        sample_index=index,
        n_samples=4,
        global_step=step,
        created_at_ts=times[1] / 1000.0,
        completed_at_ts=times[6] / 1000.0,
        turns=turns,
        initial_prompt_text="Answer with the tools.",
        reward_score=round(rng.random(), 3),
        num_preempted=0,
    )
    return trajectory_line(record) + "\n"


def _write_progress(root: Path, steps: int, start_ms: int) -> None:
    """Progress lines with their exact times beside the root."""
    name = formats.progress_file_name(start_ms / 1000.0)
    lines: list[tuple[str, int]] = [(formats.total_steps_line(steps + 10), start_ms)]
    stages = (
        ("compute reward", 9_000, 10_000),
        ("compute log prob", 13_000, 14_000),
        ("compute adv", 14_000, 14_100),
        ("update actor", 14_200, 27_000),
        ("sync params", 29_000, 29_500),
    )
    for step in range(1, steps + 1):
        at = start_ms + (step - 1) * 30_000
        lines += [
            (formats.step_header_line(step), at),
            (formats.window_line(step, "rollout", "started"), at),
            (formats.batch_load_line("try to", step, 0, 0), at),
            (formats.batch_load_line("successfully", step, 0, 0), at + 8_900),
            (formats.window_line(step, "rollout", "finished"), at + 8_950),
        ]
        for stage, start, end in stages:
            if stage == "update actor":
                lines.append((formats.window_line(step, "train", "started"), at + 14_150))
            lines.append((formats.stage_line(LineStyle.DISAGG, "start", stage), at + start))
            if step < steps or stage != "sync params":
                lines.append((formats.stage_line(LineStyle.DISAGG, "end", stage), at + end))
            if stage == "update actor":
                lines.append((formats.window_line(step, "train", "finished"), at + 27_100))
    offset, stamps = 0, []
    for line, unix_ms in lines:
        stamps.append(f"{name},{offset},{unix_ms}\n")
        offset += len(line) + 1
    text = "".join(f"{line}\n" for line, _ in lines)
    (root / formats.PROGRESS_DIR / name).write_text(text, encoding="ascii")
    (root.parent / formats.PROGRESS_TIMES_FILE).write_text("".join(stamps), encoding="ascii")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="write a generated trace directory")
    parser.add_argument("root", type=Path, help="directory to fill; times go beside it")
    parser.add_argument("--events", type=int, default=50_000, help="sample-flow rows")
    parser.add_argument("--shards", type=int, default=8, help="sample-flow files")
    parser.add_argument("--ago", type=float, default=None, help="seconds from the end to now")
    arguments = parser.parse_args()
    steps = max(arguments.events // (EVENTS_PER_TRAJECTORY * TRAJECTORIES_PER_STEP), 1)
    ago_ms = int(1000 * (0.0 if arguments.ago is None else arguments.ago))
    start_ms = int(time.time() * 1000) - steps * 30_000 - ago_ms
    generate(
        arguments.root,
        num_events=arguments.events,
        num_shards=arguments.shards,
        start_ms=start_ms,
    )


if __name__ == "__main__":
    main()
