"""A tiny run in one process: real slot, ingress, rings and doorbells, a scripted collector."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from unilab_core.config.compose import compose
from unilab_core.contracts import EnvSpec
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.records import RunInfo
from unilab_core.telemetry.training_logger import TrainingLogger
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.segments import INFERENCE_SLOT, METRIC_QUEUE, REPLAY_INGRESS
from unilab_ipc.waiting import Waiter
from unilab_learner.inference_server import InferenceServer
from unilab_learner.learner import learner_class
from unilab_learner.off_policy_loop import LoopParts, OffPolicyLoop
from unilab_learner.replay.ingress_drain import IngressDrain
from unilab_learner.saver import Progress, Saver

# Tiny products: a second thread only adds waiting, above all on a busy machine.
torch.set_num_threads(1)

E, O, C, A = 4, 3, 5, 2  # noqa: E741 - the legend's letters
COMMON = (
    f"algo.num_envs={E}",
    "algo.batch_size=8",
    "algo.updates_per_step=2",
    "algo.replay_buffer_n=16",
    "algo.learning_starts=3",
    "algo.num_atoms=11",
    "algo.symmetry_augmentation=false",  # the tiny spec has no mirror image
    "algo.v_min=-2",
    "algo.v_max=2",
    "algo.max_iterations=6",
    "algo.save_interval=100",
    "training.device=cpu",
    "training.logger=none",
)
TINY = {
    "sac": (*COMMON, "algo.actor_hidden_dim=[8]", "algo.critic_hidden_dim=[8]"),
    "flashsac": (
        *COMMON,
        "algo.actor_hidden_dim=8",
        "algo.critic_hidden_dim=8",
        "algo.actor_starts=0",
        "algo.n_step=1",
    ),
}


def tiny_spec():
    return EnvSpec(
        task="go2_joystick_flat",
        sim="mujoco",
        num_envs=E,
        obs_width=O,
        critic_obs_width=C,
        action_width=A,
        action_low=(-1.0,) * A,
        action_high=(1.0,) * A,
        obs_terms=(("gyro", O),),
        critic_obs_terms=(("all", C),),
        reward_terms=("alive",),
        termination_terms=("time_out",),
        log_keys=("reward/alive",),
        ctrl_dt_s=0.02,
        max_episode_steps=50,
        backend_device=None,
    )


class FakeBeat:
    """Keeps the story instead of writing it to shared memory."""

    def __init__(self):
        self.phases = []
        self.counted = []
        self.advances = 0

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


class ScriptedCollector(threading.Thread):
    """Ticks like the real one: request, wait, step, commit the row, request again."""

    def __init__(self, port, producer, bell, ring):
        super().__init__(daemon=True)
        self.port, self.producer, self.ring = port, producer, ring
        self.stop = threading.Event()
        self.waiter = Waiter(bell, [], self.stop.is_set)
        self.rng = np.random.default_rng(0)
        self.committed = 0
        self.actions = []
        self.versions = []
        self.error = None
        self.closed = False
        self.before_step = lambda tick: None

    def run(self):
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def _run(self):
        tick = 0
        while True:
            self.port.obs[...] = self.rng.normal(size=(E, O))
            self.port.publish(tick)
            response = self.waiter.wait(
                lambda tick=tick: self.port.try_response(tick), timeout_s=20.0, awaits="learner"
            )
            if response.closed:
                self.closed = True
                return
            self.versions.append(response.policy_version)
            self.actions.append(self.port.actions.copy())
            self.before_step(tick)
            slot = self.waiter.wait(self.producer.try_claim, timeout_s=20.0, awaits="learner")
            slot.obs[...] = tick
            slot.critic_obs[...] = tick
            slot.action[...] = self.port.actions
            slot.reward[...] = 1.0
            slot.terminated[...] = 0
            slot.truncated[...] = 0
            slot.next_obs[...] = tick + 1
            slot.next_critic_obs[...] = tick + 1
            self.producer.commit()
            self.committed += 1
            self.ring.write(
                {
                    "kind": "collector", "rank": 0, "t_ns": 1, "tick": tick, "dropped": {},
                    "env_steps": self.committed * E, "timing": {}, "cycle_ms": None,
                    "wall_ms": None, "inference": {},
                    "episodes": {"completed": tick, "timeouts": 0, "mean_return": float(tick),
                                 "mean_length": 5.0},
                    "rewards": {"reward/alive": 1.0}, "terminations": {},
                    "terminations_total": {},
                }
            )  # fmt: skip
            tick += 1


@dataclass
class TinyRun:
    """One learner with its scripted collector."""

    loop: OffPolicyLoop
    parts: LoopParts
    collector: ScriptedCollector
    records: RingReader
    ingress: ReplayIngress
    bells: list
    stop_level: list = field(default_factory=lambda: [0])

    def run(self):
        self.collector.start()
        return self.loop.run()


@pytest.fixture
def tiny_run(tmp_path):
    """`make(overrides, resume_from=path, algo=name)` -> TinyRun, not started."""
    runs = []

    def make(*overrides, resume_from=None, folder="run", algo="sac"):
        run = _make(tmp_path / folder, algo, overrides, resume_from)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.collector.stop.set()
        for bell in run.bells:
            bell.ring()
        if run.collector.is_alive():
            run.collector.join(10.0)
        for bell in run.bells:
            bell.close()


def _make(folder, algo, overrides, resume_from):
    config = compose(
        algo, "go2_joystick_flat", "mujoco", [*TINY[algo], *overrides], environ={"PATH": ""}
    )
    spec = tiny_spec()
    (folder / "checkpoints").mkdir(parents=True)
    bells = [Doorbell.create(folder / f"{role}.bell") for role in ("learner", "collector")]
    slot = local_segment(INFERENCE_SLOT, {"E": E, "O": O, "C": C, "A": A, "R": 0, "L": 0})
    depth = config.training.replay_ingress_depth
    ingress = ReplayIngress(
        local_segment(REPLAY_INGRESS, {"E": E, "O": O, "C": C, "A": A, "D": depth})
    )
    rings = [local_segment(METRIC_QUEUE, ring_dims(1 << 18)) for _ in range(2)]
    learner = learner_class(config)(config.algo, spec, torch.device("cpu"), use_amp=False)
    seconds = iter(np.arange(0.0, 1e6, 0.25))
    saver = Saver(
        config=config,
        spec=spec,
        paths=RunPaths(folder),
        learner=learner,
        seconds_since_start=lambda: float(next(seconds)),
    )
    progress = Progress() if resume_from is None else saver.resume(resume_from, -1)
    info = RunInfo(
        job="j", algo=algo, task=spec.task, sim=spec.sim, run_dir=str(folder), device="cpu",
        num_gpus=0, max_iterations=config.algo.max_iterations, num_envs=E, batch_per_rank=8,
    )  # fmt: skip
    stop_level = [0]
    beat = FakeBeat()
    parts = LoopParts(
        config=config,
        learner=learner,
        server=InferenceServer(
            InferenceSlot(slot).learner_port(bells[1].ring),
            learner.act,
            learner.device,
            check_finite=True,
        ),
        ingress=IngressDrain(ingress.consumer(bells[1].ring), learner.replay, learner.observe),
        ingress_gauges=ingress.gauges,
        saver=saver,
        logger=TrainingLogger(info, [], RingWriter(rings[0])),
        collector_ring=RingReader(rings[1]),
        waiter=Waiter(bells[0], [], lambda: stop_level[0] >= 2),
        beat=beat,
        stop_level=lambda: stop_level[0],
        num_envs=E,
        progress=progress,
        resumed=resume_from is not None,
    )
    collector = ScriptedCollector(
        InferenceSlot(slot).collector_port(bells[0].ring),
        ingress.producer(bells[0].ring),
        bells[1],
        RingWriter(rings[1]),
    )
    return TinyRun(
        loop=OffPolicyLoop(parts),
        parts=parts,
        collector=collector,
        records=RingReader(rings[0]),
        ingress=ingress,
        bells=bells,
        stop_level=stop_level,
    )
