"""A real collector process with this process in the places of launcher and learner.

The rig is a job of its own in a private registry, so it never meets a user's runs. It answers every
request with random actions and drains the ingress: what is left is the collector's own speed.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from unilab_core.config.compose import compose
from unilab_core.config.config import Config
from unilab_core.contracts import EnvSpec
from unilab_core.launch.job_files import JobFiles
from unilab_core.launch.plan import plan
from unilab_core.launch.processes import ChildProcess
from unilab_core.run.json_files import write_json_atomic
from unilab_core.run.run_dir import RunPaths
from unilab_core.run.threads import ThreadPlan
from unilab_core.tools.bench.launch import registry_at
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.heartbeat import STOP_NOW
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.names import new_run_id
from unilab_ipc.registry import JobFolder
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.waiting import Waiter

START_TIMEOUT_S = 120.0
TICK_TIMEOUT_S = 60.0


def collector_config(task: str, num_envs: int, threads: int, log_dir: str) -> Config:
    """SAC's configuration of ``task`` with ``num_envs`` environments and ``threads`` threads."""
    overrides = [
        f"algo.num_envs={num_envs}",
        f"training.torch_threads.collector_num_threads={threads}",
        f"training.log_dir={log_dir}",
        "training.logger=none",
    ]
    return compose("sac", task, "mujoco", overrides)


class CollectorRig:
    """Context manager: start the collector, ``run_ticks`` as often as needed, stop it.

    Args:
        task: task name.
        num_envs: environments of the collector.
        threads: physics threads of the collector.
        seed: of the random actions.
    """

    def __init__(self, *, task: str, num_envs: int, threads: int, seed: int = 0) -> None:
        self._task = task
        self._num_envs = num_envs
        self._threads = threads
        self._rng = np.random.default_rng(seed)
        self._stack = ExitStack()
        self._seq = 0

    def __enter__(self) -> Self:
        """Start everything; the collector waits for its first action afterwards."""
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the collector and remove every shared object."""
        self._stack.close()

    def run_ticks(self, ticks: int) -> float:
        """Answer ``ticks`` requests; return the seconds from the first answer to the last row."""
        start_ns = 0
        for index in range(ticks + 1):
            seq = self._waiter.wait(
                self._next_request, timeout_s=TICK_TIMEOUT_S, awaits="collector"
            )
            # The row of a tick is written before the next request: the clock stops when the last
            # request of the block is here, which the next block will answer.
            if index == ticks:
                break
            np.copyto(self._port.actions, self._actions[seq % len(self._actions)])
            if index == 0:
                start_ns = time.monotonic_ns()
            self._port.respond(seq, policy_version=seq)
        return (time.monotonic_ns() - start_ns) / 1e9

    def _next_request(self) -> int | None:
        while self._consumer.try_acquire() is not None:
            self._consumer.release()
        return self._port.try_request()

    def _start(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="unilab-bench-")
        folder = Path(self._stack.enter_context(scratch))
        run_dir = folder / "run"
        config = collector_config(self._task, self._num_envs, self._threads, str(run_dir))
        run = RunPaths(run_dir)
        run.logs.mkdir(parents=True)
        write_json_atomic(run.config, {"config": config.to_dict()})
        self._stack.enter_context(registry_at(folder / "registry"))
        job = JobFolder.claim("bench", {})
        threads = ThreadPlan(learner=1, collector=self._threads)
        files = JobFiles(
            folder=job, run_id=new_run_id(), run_dir=run_dir, config=config, threads=threads
        )
        self._stack.callback(files.close, {"state": "ended", "reason": "bench", "exit_code": 0})
        files.prepare()
        beat = files.beat()
        beat.register()
        child = ChildProcess(plan(config, "bench", threads)[0], run, os.environ)
        self._stack.callback(_stop, child, files)
        self._waiter = Waiter(files.bell(), [child.peer], lambda: False)
        self.spec: EnvSpec = self._waiter.wait(
            files.env_spec, timeout_s=START_TIMEOUT_S, awaits="collector"
        )
        self._attach(files, child)

    def _attach(self, files: JobFiles, child: ChildProcess) -> None:
        learner_bell = Doorbell.open(files.folder.bell_path("learner", 0))
        self._stack.callback(learner_bell.close)
        collector_bell = Doorbell.open(files.folder.bell_path("collector", 0))
        self._stack.callback(collector_bell.close)
        files.board().role("learner", 0).register()
        files.announce([])
        files.ring_children()
        self._waiter = Waiter(learner_bell, [child.peer], lambda: False)
        slot, ingress = files.segment("inference_slot"), files.segment("replay_ingress")
        self._port = InferenceSlot(slot).learner_port(collector_bell.ring)
        self._consumer = ReplayIngress(ingress).consumer(collector_bell.ring)
        shape = (16, self.spec.num_envs, self.spec.action_width)
        self._actions = self._rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def _stop(child: ChildProcess, files: JobFiles) -> None:
    files.beat().request_stop(STOP_NOW)
    files.ring_children()
    child.end_now()
