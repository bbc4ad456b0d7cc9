"""PPO and APPO in one process: the real collector loop in a thread against the real learner loop.

Memory is local, doorbells and rings are real; the environment is a clock whose observations say
which step of which episode they belong to.
"""

import threading
from dataclasses import dataclass, field

import numpy as np
import torch

from unilab_collector.acting_policy import ActingPolicy
from unilab_collector.episode_stats import EpisodeStats
from unilab_collector.guarded_env import GuardedEnv
from unilab_collector.rollout_feed import RolloutFeed
from unilab_collector.rollout_loop import RolloutLoop
from unilab_collector.rollout_report import RolloutRecords, RolloutReporter, SlotRolloutReporter
from unilab_collector.slot_loop import SlotLoop
from unilab_collector.step_feed import StepFeed
from unilab_core.config.compose import compose
from unilab_core.contracts import TIMING_KEYS, EnvSpec, StepResult
from unilab_core.nets.gaussian import GaussianPolicy
from unilab_core.nets.policy_spec import policy_spec
from unilab_core.run.job_segments import rollout_dims, slot_dims, snapshot_dims
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.records import RunInfo
from unilab_core.telemetry.training_logger import TrainingLogger
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.policy_snapshot import SnapshotReader, SnapshotWriter
from unilab_ipc.rollout_ring import RolloutRing
from unilab_ipc.segments import INFERENCE_SLOT, METRIC_QUEUE, POLICY_SNAPSHOT, ROLLOUT_RING
from unilab_ipc.waiting import Waiter
from unilab_learner.appo_learner import AppoLearner
from unilab_learner.async_loop import AsyncLoop, AsyncParts
from unilab_learner.on_policy_loop import OnPolicyLoop, OnPolicyParts
from unilab_learner.ppo_learner import PpoLearner
from unilab_learner.saver import Progress, Saver
from unilab_learner.slot_vec_env import SlotVecEnv

E, O, C, A, T = 4, 3, 5, 2, 4  # noqa: E741 - the legend's letters
HORIZON = 6
"""Steps until the clock's time limit."""
FINAL = 0.5
"""Added to the last observation of an episode, so that it is seen nowhere else."""
TINY = [
    f"algo.num_envs={E}",
    "algo.hidden_dims=[8]",
    "algo.num_learning_epochs=1",
    "algo.num_mini_batches=2",
    "algo.max_iterations=5",
    "algo.save_interval=100",
    "training.device=cpu",
    "training.logger=none",
]


class ClockEnv:
    """obs = (steps in the episode, environment, steps in all), reward 1, cut every HORIZON."""

    def __init__(self):
        self.spec = EnvSpec(
            task="go2_joystick_flat", sim="mujoco", num_envs=E, obs_width=O, critic_obs_width=C,
            action_width=A, action_low=None, action_high=None, obs_terms=(("clock", O),),
            critic_obs_terms=(("clock", C),), reward_terms=("alive",),
            termination_terms=("time_out",),
            log_keys=("reward/alive", "Episode_Termination/time_out"), ctrl_dt_s=0.02,
            max_episode_steps=HORIZON, backend_device=None,
        )  # fmt: skip
        self.timings_ns = dict.fromkeys(TIMING_KEYS, 1000)
        self.actions = []
        self.steps = np.zeros(E, int)
        self.total = 0
        self.before_step = lambda: None
        self.result = StepResult(
            obs=np.zeros((E, O), np.float32), critic_obs=np.zeros((E, C), np.float32),
            reward=np.zeros(E, np.float32), terminated=np.zeros(E, bool),
            truncated=np.zeros(E, bool), final_obs=np.full((E, O), np.nan, np.float32),
            final_critic_obs=np.full((E, C), np.nan, np.float32), log={},
        )  # fmt: skip

    def reset(self):
        self.steps[:] = np.arange(E)  # episodes do not end together
        self._observe()
        return self.result

    def step(self, actions):
        self.before_step()
        self.actions.append(actions.copy())
        result = self.result
        self.steps += 1
        self.total += 1
        self._observe()
        result.reward[:] = 1.0
        result.truncated[:] = self.steps >= HORIZON
        ids = np.flatnonzero(result.truncated)
        result.final_obs[ids] = result.obs[ids] + FINAL
        result.final_critic_obs[ids] = result.critic_obs[ids] + FINAL
        self.steps[ids] = 0
        self._observe()
        result.log = {"reward/alive": 1.0, "Episode_Termination/time_out": float(len(ids))}
        return result

    def restart(self, ids):
        self.steps[ids] = 0
        self._observe()

    def physics(self):
        return {}

    def close(self):
        pass

    def _observe(self):
        result = self.result
        result.obs[:] = np.stack([self.steps, np.arange(E), np.full(E, self.total)], axis=1)
        result.critic_obs[:, :O] = result.obs
        result.critic_obs[:, O:] = 0.1


class FakeBeat:
    """Keeps the story instead of writing it to shared memory."""

    def __init__(self):
        self.phases, self.counted, self.advances = [], [], 0

    def phase(self, name, awaits=None):
        self.phases.append(name)

    def advance(self):
        self.advances += 1

    def beat(self):
        pass

    def counts(self, iteration, env_steps):
        self.counted.append((iteration, env_steps))

    def awaiting(self, awaits):
        return 0

    def restore_awaits(self, before):
        pass


class KeepingSink:
    """Every record that a backend would have got."""

    def __init__(self):
        self.records, self.dropped_count = [], 0

    def write(self, step, wall_time_s, scalars):
        self.records.append((step, dict(scalars)))

    def close(self, timeout_s):
        return True


@dataclass
class Rig:
    """One learner loop and its collector."""

    loop: object
    parts: object
    learner: object
    env: ClockEnv
    collector_loop: object
    sink: KeepingSink
    stop_level: list
    bells: list
    ring: object = None
    error: BaseException | None = None
    thread: threading.Thread = field(default=None)

    def run(self):
        self.thread = threading.Thread(target=self._collect, daemon=True)
        self.thread.start()
        reason = self.loop.run()
        self.thread.join(20.0)
        assert not self.thread.is_alive()
        return reason

    def stop(self):
        self.stop_level[0] = 2
        for bell in self.bells:
            bell.ring()
        if self.thread is not None:
            self.thread.join(20.0)
        for bell in self.bells:
            bell.close()

    def _collect(self):
        try:
            self.collector_loop.run()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error


def make_rig(algo, folder, *overrides, resume_from=None):
    """Build both halves, not started."""
    steps_key = "num_steps_per_env" if algo == "ppo" else "steps_per_env"
    settings = [*TINY, f"algo.{steps_key}={T}", *overrides]
    config = compose(algo, "go2_joystick_flat", overrides=settings, environ={"PATH": ""})
    env = ClockEnv()
    (folder / "checkpoints").mkdir(parents=True)
    bells = [Doorbell.create(folder / f"{role}.bell") for role in ("learner", "collector")]
    rings = [local_segment(METRIC_QUEUE, ring_dims(1 << 18)) for _ in range(2)]
    learner_type = PpoLearner if algo == "ppo" else AppoLearner
    learner = learner_type(config.algo, env.spec, torch.device("cpu"), use_amp=False)
    seconds = iter(np.arange(0.0, 1e6, 0.25))
    saver = Saver(
        config=config, spec=env.spec, paths=RunPaths(folder), learner=learner,
        seconds_since_start=lambda: float(next(seconds)),
    )  # fmt: skip
    progress = Progress() if resume_from is None else saver.resume(resume_from, -1)
    info = RunInfo(
        job="j", algo=algo, task=env.spec.task, sim="mujoco", run_dir=str(folder), device="cpu",
        num_gpus=0, max_iterations=config.algo.max_iterations, num_envs=E,
        batch_per_rank=learner.rows_per_batch,
    )  # fmt: skip
    sink, stop_level = KeepingSink(), [0]
    common = {
        "config": config,
        "learner": learner,
        "saver": saver,
        "logger": TrainingLogger(info, [sink], RingWriter(rings[0])),
        "collector_ring": RingReader(rings[1]),
        "beat": FakeBeat(),
        "stop_level": lambda: stop_level[0],
        "progress": progress,
    }
    waiters = [Waiter(bell, [], lambda: stop_level[0] >= 2) for bell in bells]
    guarded = GuardedEnv(env, config.training.nan_guard)
    stats = EpisodeStats(E, guarded.dropped)
    records = RolloutRecords(ring=RingWriter(rings[1]), stats=stats, rank=0)
    build = _ppo if algo == "ppo" else _appo
    loop, parts, collector_loop, ring = build(
        config, guarded, common, waiters, bells, stats, records
    )
    return Rig(
        loop=loop, parts=parts, learner=learner, env=env, collector_loop=collector_loop, sink=sink,
        stop_level=stop_level, bells=bells, ring=ring,
    )  # fmt: skip


def _ppo(config, env, common, waiters, bells, stats, records):
    slot = InferenceSlot(local_segment(INFERENCE_SLOT, slot_dims(env.spec, transitions=True)))
    vec_env = SlotVecEnv(
        slot.learner_port(bells[1].ring), env.spec, torch.device("cpu"), waiter=waiters[0],
        beat=common["beat"], policy_version=lambda: common["progress"].iteration,
    )  # fmt: skip
    parts = OnPolicyParts(**common, env=vec_env)
    port = slot.collector_port(bells[0].ring)
    collector = SlotLoop(
        env=env, slot=slot, port=port, feed=StepFeed(port, env.spec), stats=stats,
        reporter=SlotRolloutReporter(records, config.algo.num_steps_per_env), waiter=waiters[1],
        beat=FakeBeat(),
    )  # fmt: skip
    return OnPolicyLoop(parts), parts, collector, None


def _appo(config, env, common, waiters, bells, stats, records):
    algo, spec = config.algo, env.spec
    ring = RolloutRing(local_segment(ROLLOUT_RING, rollout_dims(algo, spec)), debug=True)
    snapshot = local_segment(POLICY_SNAPSHOT, snapshot_dims(algo, spec))
    parts = AsyncParts(
        **common, ring=ring.consumer(bells[1].ring),
        snapshot=SnapshotWriter(snapshot, bells[1].ring),
        num_values=snapshot_dims(algo, spec)["P"], waiter=waiters[0],
    )  # fmt: skip
    policy = ActingPolicy(
        GaussianPolicy(policy_spec(algo, obs_width=O, action_width=A)), SnapshotReader(snapshot),
        waiters[1], seed=7,
    )  # fmt: skip
    collector = RolloutLoop(
        env=env, policy=policy, stats=stats, reporter=RolloutReporter(records), beat=FakeBeat(),
        feed=RolloutFeed(ring.producer(bells[0].ring), spec, algo.steps_per_env, waiters[1]),
        check=lambda: None,
    )  # fmt: skip
    return AsyncLoop(parts), parts, collector, ring
