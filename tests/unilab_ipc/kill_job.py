"""One trial of a kill test: segments and bells made as the launcher would, and two children."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kill_roles

from unilab_ipc.doorbell import Doorbell
from unilab_ipc.heartbeat import HeartbeatBoard
from unilab_ipc.layout import Dims, Layout
from unilab_ipc.memory import create_segment
from unilab_ipc.names import segment_name

ENDLESS = 10**9
WAIT_S = 120

WaitUntil = Callable[[Callable[[], bool]], None]


class KillJob:
    """Starts the roles of `program` over fresh segments; `close` leaves nothing behind."""

    def __init__(
        self,
        program: str,
        tables: Mapping[str, tuple[Layout, Dims]],
        run_id: str,
        bell_dir: Path,
    ) -> None:
        self.program = program
        self.run_id = run_id
        self.bell_dir = bell_dir
        self.children: dict[str, subprocess.Popen[str]] = {}
        self.segments = {
            kind: create_segment(layout, segment_name(run_id, kind, 0), dims)
            for kind, (layout, dims) in tables.items()
        }
        self.bells = [Doorbell.create(bell_dir / f"{role}-0.bell") for role in kill_roles.OTHER]

    def start(self, role: str, ticks: int, *kill_at: str) -> None:
        self.children[role] = subprocess.Popen(
            [
                sys.executable,
                self.program,
                role,
                self.run_id,
                str(self.bell_dir),
                str(ticks),
                *kill_at,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def progress(self, role: str) -> int:
        return HeartbeatBoard(self.segments["heartbeat"]).row(role, 0).progress

    def report(self, role: str) -> dict[str, Any]:
        output, _ = self.children[role].communicate(timeout=WAIT_S)
        return json.loads(output)

    def kill_at_random(self, victim: str, seed: int, wait_until: WaitUntil) -> None:
        target = random.Random(f"{victim}-{seed}").randrange(1, 400)
        self.start("collector", ENDLESS)
        self.start("learner", ENDLESS)
        wait_until(lambda: self.progress(victim) >= target)
        self.children[victim].send_signal(signal.SIGKILL)

    def survivor_report(self, victim: str) -> dict[str, Any]:
        """What the survivor said, after checking that it named the victim and nothing else."""
        survivor = kill_roles.OTHER[victim]
        report = self.report(survivor)
        assert self.children[victim].wait(timeout=WAIT_S) == -signal.SIGKILL
        assert self.children[survivor].returncode == 10
        assert (report["dead"], report["pid"]) == (victim, self.children[victim].pid)
        return report

    def close(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
            child.communicate()
        for segment in self.segments.values():
            segment.unlink()
            segment.close()
        for bell in self.bells:
            bell.close()
