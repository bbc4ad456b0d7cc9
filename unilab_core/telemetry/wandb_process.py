"""`python -m unilab_core.telemetry.wandb_process RUN_DIR PARENT`: all that imports wandb.

Reads msgpack messages from standard input, in this order:

    {"init": arguments of wandb.init}
    {"step": n, "time_s": wall clock, "scalars": {...}}        any number
    {"video": path, "step": n or absent}                       at most one
    {"finish_s": seconds}                                      leave within that time

Runs at low priority. An input that ends without `finish_s` means that the sender has died: the run
is marked failed and the process leaves soon after. Exit code 0: everything was handed to W&B.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import msgpack

from unilab_core.run.json_files import write_json_atomic
from unilab_core.run.packages import is_installed
from unilab_core.telemetry.wandb_sink import INFO_NAME
from unilab_ipc.peers import set_parent_death_signal

INSTALL = "pip install 'unilab-rl[wandb]'"
NICENESS = 10
READ_BYTES = 1 << 16
ORPHAN_FINISH_S = 2
VIDEO_KEY = "play_video"
MIN_FINISH_S = 1


def main() -> int:
    """Serve one run; the exit code."""
    run_dir, parent = Path(sys.argv[1]), int(sys.argv[2])
    # The parent decides when to leave; a Ctrl-C meant for the job must not cut off the rest.
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _give_up)
    signal.signal(signal.SIGTERM, _leave_soon)  # also the parent's death, wherever we wait
    set_parent_death_signal(parent)
    os.nice(NICENESS)
    if not is_installed("wandb"):
        print(f"wandb is not installed: {INSTALL}", file=sys.stderr)
        return 1
    try:
        return _serve(run_dir, _messages(sys.stdin.buffer))
    except Exception as error:  # noqa: BLE001 - the process entry point, and foreign code
        print(f"W&B: {type(error).__name__}: {_first_line(error)}", file=sys.stderr, flush=True)
        # Its own exit handlers may wait for a network that never answers.
        os._exit(1)


def _serve(run_dir: Path, messages: Iterator[Mapping[str, Any]]) -> int:
    run = _start(run_dir, next(messages)["init"])
    for message in messages:
        if "scalars" in message:
            run.log(message["scalars"], step=message["step"])
        elif "video" in message:
            _log_video(run, message)
        elif "finish_s" in message:
            return _finish(run, message["finish_s"], 0)
    return _finish(run, ORPHAN_FINISH_S, 1)


def _start(run_dir: Path, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - foreign type
    import wandb  # pyright: ignore[reportMissingImports] - an extra

    settings = wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True)
    run = wandb.init(dir=str(run_dir), settings=settings, **arguments)
    info = {"id": run.id, "project": arguments["project"], "url": run.url, "dir": run.dir}
    write_json_atomic(run_dir / INFO_NAME, info)
    return run


def _log_video(run: Any, message: Mapping[str, Any]) -> None:  # noqa: ANN401 - foreign type
    import wandb  # pyright: ignore[reportMissingImports] - an extra

    video = wandb.Video(message["video"], format="mp4")
    run.log({VIDEO_KEY: video}, step=message.get("step"))


def _finish(run: Any, seconds: float, code: int) -> int:  # noqa: ANN401 - foreign type
    """Finish, or leave without: what is on disk by then can be sent later."""
    signal.alarm(max(MIN_FINISH_S, round(seconds)))
    run.finish(exit_code=code)
    import wandb  # pyright: ignore[reportMissingImports] - an extra

    wandb.teardown(exit_code=code)
    return code


def _leave_soon(_signum: int, _frame: FrameType | None) -> None:
    signal.alarm(ORPHAN_FINISH_S)


def _give_up(_signum: int, _frame: FrameType | None) -> None:
    os.write(2, b"W&B: not everything was sent in time; `wandb sync` sends the rest\n")
    os._exit(2)


def _messages(source: BinaryIO) -> Iterator[Mapping[str, Any]]:
    unpacker = msgpack.Unpacker()
    while data := os.read(source.fileno(), READ_BYTES):
        unpacker.feed(data)
        yield from unpacker


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


if __name__ == "__main__":
    sys.exit(main())
