"""--detach: a second launcher in a session of its own; this one stays until it has started.

The background launcher writes to a pipe until its job is attachable and lets go of it then. What
comes through the pipe is shown here, errors of the start-up included, so that `--detach` fails as
visibly as a run in the foreground.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from unilab_core.launch.run_command import RunOptions, build_config
from unilab_core.run.exit_codes import ExitCode
from unilab_ipc.names import default_job_name


def run_detached(options: RunOptions, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Start in the background; 0 once it trains, else the exit code of the failed start."""
    config = build_config(options, environ)  # a mistyped setting needs no second process
    job = options.job or default_job_name(config.algo.algo, config.training.task_name)
    options = replace(options, job=job)
    arguments = [item for item in argv if item != "--detach"]
    if "--job" not in arguments and not any(item.startswith("--job=") for item in arguments):
        arguments = ["--job", job, *arguments]
    popen = subprocess.Popen(
        (sys.executable, "-m", "unilab_core.launch", "--detached", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        start_new_session=True,
    )
    assert popen.stdout is not None
    while chunk := os.read(popen.stdout.fileno(), 65536):  # until the other end lets go, or dies
        os.write(sys.stdout.fileno(), chunk)
    try:
        # A failed start is over in a moment; a job that has started does not end here.
        code = popen.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        print(f"watch it: unilab-monitor {job}   stop it: unilab-launch stop {job}", flush=True)
        return int(ExitCode.OK)
    return code
