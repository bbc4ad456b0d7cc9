"""The video after a completed training: a child with a time limit whose failure is one line."""

import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from unilab_core.config.training import TrainingConfig
from unilab_core.launch.console import Console
from unilab_core.launch.environment import child_environ
from unilab_core.launch.loop import SignalPipe
from unilab_core.launch.processes import read_tail
from unilab_core.run.json_files import read_json, write_json_atomic
from unilab_core.run.run_dir import RunPaths
from unilab_ipc.errors import PeerDead
from unilab_ipc.peers import Peer, process_start_ticks

LIMIT_S = 300.0
REPORT_LINES = 12
MODULE = "unilab_core.tools.eval_cli"


def record_video(
    run_dir: Path,
    training: TrainingConfig,
    console: Console,
    environ: Mapping[str, str],
    signals: SignalPipe,
) -> None:
    """Play the policy once; whatever goes wrong is said in one line."""
    run = RunPaths(run_dir)
    length = ("--video-steps", str(training.play_steps))
    copies = ("--video-envs", str(training.play_env_num))
    log = run.log("play", 0)
    try:
        with log.open("ab") as output:
            popen = subprocess.Popen(
                (sys.executable, "-m", MODULE, str(run_dir), "--video", *length, *copies),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environ(environ, "play", {}),
                start_new_session=True,
            )
        problem = wait_child(popen, signals, LIMIT_S)
    except OSError as error:
        problem = str(error)
    if problem is None and not run.video.is_file():
        problem = "no file was written"
    if problem is not None:
        tail = read_tail(log, 1)
        detail = f": {tail[0]}" if tail else ""
        console.warn(f"no video: {problem}{detail} ({log})")
        return
    for line in read_tail(log, REPORT_LINES):  # the evaluation that comes with the film
        console.say(line)
    _note_in_summary(run)


def wait_child(popen: subprocess.Popen[bytes], signals: SignalPipe, limit_s: float) -> str | None:
    """None on success; any signal to the launcher ends the child, the training is done already."""
    ticks = process_start_ticks(popen.pid) or 0
    peer = Peer("play", 0, popen.pid, ticks).open()
    poll = select.poll()
    poll.register(peer.fileno(), select.POLLIN)
    poll.register(signals.fileno(), select.POLLIN)
    deadline_s = time.monotonic() + limit_s
    problem: str | None = None
    while not peer.is_dead():
        rest_s = deadline_s - time.monotonic()
        poll.poll(max(0, round(min(rest_s, 1.0) * 1000)))
        if signals.take():
            problem = "interrupted"
        elif rest_s <= 0:
            problem = f"not finished within {limit_s:.0f} s"
        if problem is not None:
            try:
                peer.send_signal(signal.SIGKILL)
            except PeerDead:
                break
            break
    code = popen.wait()
    peer.close()
    return problem if problem is not None or code == 0 else f"exit code {code}"


def _note_in_summary(run: RunPaths) -> None:
    summary = read_json(run.summary)
    if summary is not None:
        write_json_atomic(run.summary, {**summary, "play_video_path": str(run.video)})
