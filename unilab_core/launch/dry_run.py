"""--dry-run: build the environment once for its sizes, print the plan, leave nothing.

Uses a registry and a run directory of its own under the system's temporary directory, so that not
even the name of the job is taken.
"""

import os
import select
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from unilab_core.config.config import Config
from unilab_core.contracts import EnvSpec
from unilab_core.launch.console import Console
from unilab_core.launch.job_files import JobFiles
from unilab_core.launch.loop import SignalPipe
from unilab_core.launch.plan import ProcessSpec, plan
from unilab_core.launch.processes import ChildProcess
from unilab_core.launch.run_command import RunOptions, build_config
from unilab_core.launch.start_error import StartError
from unilab_core.run.exit_codes import ExitCode, exit_code_of_signal
from unilab_core.run.job_segments import experience_segments, ring_segments
from unilab_core.run.json_files import write_json_atomic
from unilab_core.run.run_dir import RunPaths, runs_folder
from unilab_core.run.threads import available_cores, plan_threads
from unilab_ipc.errors import NoSpace
from unilab_ipc.memory import shm_free_bytes
from unilab_ipc.names import default_job_name, new_run_id
from unilab_ipc.registry import RUNTIME_DIR_VARIABLE, JobFolder


def run_dry(options: RunOptions, console: Console, environ: Mapping[str, str]) -> int:
    """Print what a run would consist of."""
    config = build_config(options, environ)
    job = options.job or default_job_name(config.algo.algo, config.training.task_name)
    threads = plan_threads(config.training.torch_threads, available_cores(), config.algo.overlap)
    scratch = Path(tempfile.mkdtemp(prefix="unilab-dry-run-"))
    registry = os.environ.get(RUNTIME_DIR_VARIABLE)
    os.environ[RUNTIME_DIR_VARIABLE] = str(scratch / "registry")
    try:
        with SignalPipe() as signals:
            files = _prepare(config, job, scratch)
            try:
                specs = plan(config, job, threads, flags=("--spec-only",))
                inherited = {**environ, RUNTIME_DIR_VARIABLE: str(scratch / "registry")}
                env_spec = _build(specs[0], files, inherited, signals)
            finally:
                files.close({"state": "ended", "reason": "dry run", "exit_code": 0})
    except NoSpace as error:
        raise StartError(ExitCode.NO_SPACE, str(error)) from None
    finally:
        if registry is None:
            del os.environ[RUNTIME_DIR_VARIABLE]
        else:
            os.environ[RUNTIME_DIR_VARIABLE] = registry
        shutil.rmtree(scratch, ignore_errors=True)
    for line in describe(config, job, plan(config, job, threads), env_spec):
        console.say(line)
    return int(ExitCode.OK)


def describe(
    config: Config, job: str, processes: tuple[ProcessSpec, ...], spec: EnvSpec
) -> list[str]:
    """The plan in lines."""
    segments = (*ring_segments(), *experience_segments(config, spec))
    total_bytes = sum(segment.size_bytes for segment in segments)
    lines = [
        f"job            {job}",
        f"runs under     {config.training.log_dir or runs_folder(config)}",
        f"hardware       {config.hardware.profile}",
        f"environments   {spec.num_envs} x {spec.task} ({spec.sim})",
        f"observations   policy {spec.obs_width}, critic {spec.critic_obs_width}",
        f"actions        {spec.action_width}",
        "processes",
        *(f"  {process.role}-{process.rank}  {process.command()}" for process in processes),
        "segments",
    ]
    for segment in segments:
        geometry = ", ".join(f"{name}={size}" for name, size in segment.dims.items())
        lines.append(f"  {segment.kind:18} {segment.size_bytes:>12,} bytes  ({geometry})")
    lines.append(f"  {'together':18} {total_bytes:>12,} bytes, {shm_free_bytes():,} bytes free")
    return lines


def _prepare(config: Config, job: str, scratch: Path) -> JobFiles:
    run_dir = scratch / "run"
    RunPaths(run_dir).logs.mkdir(parents=True)
    write_json_atomic(RunPaths(run_dir).config, {"version": 1, "config": config.to_dict()})
    threads = plan_threads(config.training.torch_threads, available_cores(), config.algo.overlap)
    folder = JobFolder.claim(job, {"dry_run": True})
    files = JobFiles(
        folder=folder, run_id=new_run_id(), run_dir=run_dir, config=config, threads=threads
    )
    try:
        files.prepare()
        files.beat().register()
    except BaseException:
        files.close({"state": "ended", "reason": "dry run", "exit_code": None})
        raise
    return files


def _build(
    spec: ProcessSpec, files: JobFiles, environ: Mapping[str, str], signals: SignalPipe
) -> EnvSpec:
    """Run the collector until it has described its environment."""
    child = ChildProcess(spec, RunPaths(files.run_dir), environ)
    try:
        poll = select.poll()
        poll.register(child.peer.fileno(), select.POLLIN)
        poll.register(signals.fileno(), select.POLLIN)
        ready = poll.poll(round(files.config.training.startup_hang_after_s * 1000))
        interrupts = signals.take()
        if interrupts:
            raise StartError(exit_code_of_signal(interrupts[0]), "interrupted")
        if not ready:
            raise StartError(ExitCode.HANG, f"{spec.role}-0 did not describe its environment")
        child_exit = child.reap(files.board().row(spec.role, 0).phase)
        failure = None if child_exit is None else child_exit.failure()
        if failure is not None:
            raise StartError(failure.exit_code, failure.line())
        env_spec = files.env_spec()
        if env_spec is None:
            raise StartError(ExitCode.PROCESS_DIED, f"{spec.role}-0 wrote no env_spec.json")
        return env_spec
    finally:
        child.end_now()
