"""The soak itself: start a command, sample it, stop it when it stands still, and judge the end.

start (own session, adopted orphans) -> sample every interval -> ends by itself
                                            |-> no first sign of life: timeout/startup
                                            |-> no further one: timeout/stale_tick
                                            `-> SIGINT, SIGTERM, SIGHUP: external_cancellation
-> SIGTERM to its process group, grace, SIGKILL to every descendant (only when stopped)
-> grace: what is still there is residue -> run_summary.json -> verdict
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unilab_core.launch.loop import SignalPipe
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_core.tools.soak.artifact import MonitorSettings, SoakArtifact
from unilab_core.tools.soak.liveness import JobWatch, Movement
from unilab_core.tools.soak.rules import Evidence, Finding, judge
from unilab_core.tools.soak.sampling import (
    ProcessRow,
    command_of,
    descendants,
    gpu_sample,
    process_sample,
    progress_sample,
    read_process,
    shared_memory_sample,
)
from unilab_ipc.errors import IpcError, PeerDead
from unilab_ipc.peers import Peer, adopt_orphans

ARTIFACT_NAME = "soak.json"
CONSOLE_NAME = "soak-console.log"
STOP_GRACE_S = 5.0
RECORD_S = 4.0
"""A launcher of ours needs this after its last child: kill, summary, removal of the names."""
REAP_S = 5.0
LOOK_INTERVAL_S = 0.1
"""Between two looks for residues: there is no event for the end of a process of unknown parent."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SoakOptions:
    """What to run and where the results go."""

    command: tuple[str, ...]
    out: Path
    """Folder of the artifact and the console log; exists."""
    settings: MonitorSettings
    progress_dir: Path | None = None
    """Folder whose growth and run_summary.json count; None: the job's run directory, else `out`."""
    context: Mapping[str, str]


@dataclass(kw_only=True, slots=True, frozen=True)
class Verdict:
    """How a soak ended."""

    passed: bool
    reason: str | None
    classification: str | None
    signum: int | None
    """The signal that ended the soak itself."""


def run_soak(options: SoakOptions) -> Verdict:
    """Run the command to its end; OSError when it cannot even be started."""
    adopt_orphans()
    with SignalPipe() as signals:
        return _Soak(options, signals).run()


class _Soak:
    """One soak, from the start of the command to the verdict."""

    def __init__(self, options: SoakOptions, signals: SignalPipe) -> None:
        self._options = options
        self._settings = options.settings
        self._signals = signals
        self._watch = JobWatch()
        self._movement = Movement()
        self._attached = False
        self._signum: int | None = None
        self._known: set[tuple[int, int]] = set()
        self._started_s = time.monotonic()
        self._started_wall_s = time.time()
        console = options.out / CONSOLE_NAME
        with console.open("wb") as output:
            self._popen = subprocess.Popen(
                options.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        root = read_process(self._popen.pid)
        assert root is not None, "an unreaped child keeps its entry"
        self._root = Peer("command", 0, root.pid, root.start_ticks).open()
        self._artifact = SoakArtifact(
            options.out / ARTIFACT_NAME,
            command=options.command,
            context=options.context,
            settings=options.settings,
            console_log=console,
        )

    def run(self) -> Verdict:
        try:
            first = self._follow()
        except Exception as error:  # noqa: BLE001 - whatever broke, the command must not run on
            first = Finding(kind="monitor_failure", text=f"{type(error).__name__}: {error}")
        ended_s = time.monotonic()
        if first is not None:
            self._stop()
        returncode = self._reap()
        residual = self._residues()
        self._watch.look_back({pid for pid, _ in self._known} | {self._popen.pid})
        self._watch.close()
        return self._judge(first, returncode, ended_s - self._started_s, residual)

    # ---- while it runs

    def _follow(self) -> Finding | None:
        """Sample until the command ends or has to be stopped; why it has to."""
        next_s = self._started_s
        while True:
            now_s = time.monotonic()
            if now_s >= next_s:
                self._sample(now_s)
                finding = self._standstill(now_s)
                if finding is not None:
                    return finding
                next_s = max(next_s + self._settings.sample_interval_s, time.monotonic())
            signals = self._wait(max(0.0, next_s - time.monotonic()))
            if self._root.is_dead():
                return None
            if signals:
                self._signum = signals[0]
                name = signal.Signals(self._signum).name
                return Finding(kind="external_cancellation", text=f"the soak received {name}")

    def _wait(self, timeout_s: float) -> list[int]:
        poll = select.poll()
        for source in (self._root, self._signals):
            poll.register(source.fileno(), select.POLLIN)
        poll.poll(round(timeout_s * 1e3) + 1)
        return self._signals.take()

    def _sample(self, now_s: float) -> None:
        rows = self._descendants()
        pids = {row.pid for row in rows}
        counters = self._watch.sign(pids)
        progress = progress_sample(self._progress_dir(), self._own_files())
        if counters is not None:
            if not self._attached:  # files that grew before say nothing about the job
                self._attached, self._movement = True, Movement()
            moved = any(any(row) for row in counters)
            self._movement.look(("counters", counters), moved, now_s)
        else:
            first = self._movement.sign is None
            total_bytes = progress["bytes_total"]
            self._movement.look(("bytes", total_bytes), not first, now_s)
        self._artifact.add(
            {
                "elapsed_s": now_s - self._started_s,
                "process": process_sample(rows),
                "gpu": gpu_sample(pids),
                "progress": progress,
                "shared_memory": shared_memory_sample(self._watch.run_id),
                "counters": counters,
            }
        )

    def _standstill(self, now_s: float) -> Finding | None:
        settings, movement = self._settings, self._movement
        if not movement.started:
            if now_s - self._started_s > settings.startup_timeout_s:
                text = f"no sign of progress within {settings.startup_timeout_s:g} s"
                return Finding(kind="timeout/startup", text=text)
        elif now_s - movement.changed_s > settings.stale_progress_s:
            text = f"no progress for {now_s - movement.changed_s:.1f} s"
            return Finding(kind="timeout/stale_tick", text=text)
        return None

    def _descendants(self) -> list[ProcessRow]:
        rows = descendants(os.getpid())
        self._known |= {row.identity for row in rows}
        return rows

    def _progress_dir(self) -> Path:
        return self._options.progress_dir or self._watch.run_dir or self._options.out

    def _own_files(self) -> Collection[Path]:
        return {self._options.out / name for name in (ARTIFACT_NAME, CONSOLE_NAME)}

    # ---- the end

    def _stop(self) -> None:
        """SIGTERM to the process group of the command, and SIGKILL to all that is left of it."""
        group = [row for row in self._descendants() if row.pgid == self._popen.pid]
        _signal(group, signal.SIGTERM)
        deadline_s = time.monotonic() + self._stop_grace_s()
        while not self._root.is_dead() and time.monotonic() < deadline_s:
            self._wait(max(0.0, deadline_s - time.monotonic()))
        if not self._root.is_dead():
            _signal(self._descendants(), signal.SIGKILL)

    def _stop_grace_s(self) -> float:
        """A job of ours has promised an end within its own limit, record and clean-up included."""
        run_dir = self._watch.run_dir
        record = None if run_dir is None else read_json(RunPaths(run_dir).config)
        training = ((record or {}).get("config") or {}).get("training") or {}
        promised_s = training.get("stop_grace_s")
        if not isinstance(promised_s, int | float):
            return STOP_GRACE_S
        return max(STOP_GRACE_S, promised_s + RECORD_S)

    def _reap(self) -> int | None:
        try:
            return self._popen.wait(REAP_S)
        except subprocess.TimeoutExpired:
            return None

    def _residues(self) -> dict[str, Any]:
        """What outlived the command by the grace; ended here, because nobody else would."""
        deadline_s = time.monotonic() + self._settings.post_shutdown_grace_s
        while True:
            _reap_orphans()
            rows = self._descendants()
            names = shared_memory_sample(self._watch.run_id)["names"]
            if not (rows or names) or time.monotonic() >= deadline_s:
                break
            self._wait_without_root(LOOK_INTERVAL_S)
        found = [
            {"pid": row.pid, "start_ticks": row.start_ticks, "command": command_of(row.pid)}
            for row in rows
        ]
        _signal(rows, signal.SIGKILL)
        for row in rows:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(row.pid, 0 if row.ppid == os.getpid() else os.WNOHANG)
        return {"residual_processes": found, "residual_shared_memory": names}

    def _wait_without_root(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._signals.fileno(), select.POLLIN)
        poll.poll(round(timeout_s * 1e3))
        self._signals.take()

    def _judge(
        self,
        first: Finding | None,
        returncode: int | None,
        duration_s: float,
        residual: dict[str, Any],
    ) -> Verdict:
        path = self._summary_path()
        summary = _read(path)
        findings = judge(
            Evidence(
                returncode=returncode,
                duration_s=duration_s,
                min_duration_s=self._settings.min_duration_s,
                residual=_in_words(residual),
                summary_exists=path is not None,
                summary=summary,
                first=first,
            )
        )
        passed = self._artifact.finish(
            findings,
            summary=summary,
            returncode=returncode,
            duration_s=duration_s,
            run_dir=self._watch.run_dir,
            residual=residual,
        )
        record = self._artifact.record()
        return Verdict(
            passed=passed,
            reason=record["failure_reason"],
            classification=record["failure_classification"],
            signum=self._signum,
        )

    def _summary_path(self) -> Path | None:
        """The run's own summary, or the newest one that the command wrote below its folder."""
        if self._watch.run_dir is not None:
            path = RunPaths(self._watch.run_dir).summary
            return path if path.is_file() else None
        written = [
            path
            for path in self._progress_dir().rglob(RunPaths(Path()).summary.name)
            if path.stat().st_mtime >= self._started_wall_s - 1.0
        ]
        return max(written, key=lambda path: path.stat().st_mtime_ns, default=None)


def _signal(rows: Sequence[ProcessRow], signum: int) -> None:
    for row in rows:
        peer = Peer("command", 0, row.pid, row.start_ticks)
        with contextlib.suppress(PeerDead, IpcError, PermissionError):
            peer.open().send_signal(signum)
        peer.close()


def _reap_orphans() -> None:
    """Adopted processes that have ended stay zombies until somebody asks for their status."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _in_words(residual: Mapping[str, Any]) -> list[str]:
    processes = [f"pid {p['pid']} ({p['command']:.80})" for p in residual["residual_processes"]]
    return [*processes, *(f"/dev/shm/{name}" for name in residual["residual_shared_memory"])]


def _read(path: Path | None) -> object:
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
