"""The video of a W&B run: sent after the learner has left, as a continuation of its run.

Offline, the continuation is a second `offline-run-*` folder with the same run id; `wandb sync`
joins both (the second one with `--append`).
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgpack

from unilab_core.config.training import TrainingConfig
from unilab_core.launch.console import Console
from unilab_core.launch.environment import child_environ
from unilab_core.launch.loop import SignalPipe
from unilab_core.launch.play import wait_child
from unilab_core.launch.processes import read_tail
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.wandb_sink import init_arguments, process_command, run_info

LIMIT_S = 60.0


def upload_video(
    run_dir: Path,
    training: TrainingConfig,
    console: Console,
    environ: Mapping[str, str],
    signals: SignalPipe,
) -> None:
    """Add the video, where there is one, to the W&B run; a failure is one line."""
    run, info = RunPaths(run_dir), run_info(run_dir)
    if training.logger != "wandb" or not run.video.is_file() or "id" not in info:
        return
    arguments = init_arguments(training, job="", run_id=info["id"], config={})
    kept = {name: arguments[name] for name in ("project", "entity", "mode") if name in arguments}
    steps = (read_json(run.summary) or {}).get("total_env_steps")
    messages = (
        {"init": {**kept, "id": info["id"], "resume": "allow"}},
        {"video": str(run.video), "step": steps},
        {"finish_s": LIMIT_S},
    )
    log = run.log("wandb", 0)
    try:
        with log.open("ab") as output:
            popen = subprocess.Popen(
                process_command(run_dir),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environ(environ, "learner", {}),
                start_new_session=True,
            )
        assert popen.stdin is not None
        # A few hundred bytes: they fit into the pipe, so this cannot wait.
        popen.stdin.write(b"".join(map(msgpack.packb, messages)))
        popen.stdin.close()
        problem = wait_child(popen, signals, LIMIT_S)
    except OSError as error:
        problem = str(error)
    if problem is not None:
        tail = read_tail(log, 1)
        detail = f": {tail[0]}" if tail else ""
        console.warn(f"the video was not sent to W&B: {problem}{detail} ({log})")
