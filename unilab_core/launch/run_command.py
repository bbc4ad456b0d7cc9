"""One training run: from arguments to exit code.

    compose, check  ->  collect leftovers  ->  claim the name  ->  run directory  ->  segments
    ->  children  ->  supervise  ->  summary, removal  ->  video

Until the name is claimed nothing exists; whatever fails after that removes what it made. Failures
of the start-up are StartError: an exit code and one line.
"""

import errno
import faulthandler
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unilab_core.config.compose import compose
from unilab_core.config.config import Config
from unilab_core.config.errors import ConfigError
from unilab_core.config.hardware import detect_profile
from unilab_core.config.support import unsupported_settings
from unilab_core.launch.console import Console, Panel, can_draw
from unilab_core.launch.debugged import DebuggedProcess, debug_command
from unilab_core.launch.ending import (
    RunFacts,
    ended_record,
    last_line,
    note_cleanup_error,
    now_utc,
    write_ending,
)
from unilab_core.launch.fault_places import places
from unilab_core.launch.job_files import JobFiles
from unilab_core.launch.launch_trace import LaunchTrace
from unilab_core.launch.loop import Loop, SignalPipe
from unilab_core.launch.outcome import ChildExit, Failure, Outcome, failed
from unilab_core.launch.plan import plan
from unilab_core.launch.play import record_video
from unilab_core.launch.processes import ChildProcess, read_tail
from unilab_core.launch.start_error import StartError
from unilab_core.launch.upload import upload_video
from unilab_core.run.child import STACKS_SIGNAL
from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.failures import CheckpointError, RunDirError
from unilab_core.run.fault_point import arm
from unilab_core.run.faults import read_fault, require_occurs
from unilab_core.run.job_trace import open_trace, target_of, trace_facts
from unilab_core.run.json_files import write_json_atomic
from unilab_core.run.machine import software_versions
from unilab_core.run.run_dir import (
    RunPaths,
    create_run_dir,
    has_checkpoint,
    load_run,
    newest_run,
    runs_folder,
)
from unilab_core.run.threads import available_cores, plan_threads
from unilab_core.telemetry.plain import sanitize
from unilab_ipc.clock import MonotonicClock
from unilab_ipc.errors import IpcError, NameInUse, NoSpace, SegmentCorrupt
from unilab_ipc.gc import collect_garbage
from unilab_ipc.names import default_job_name, new_run_id, validate_job_name
from unilab_ipc.registry import JobFolder

MIN_DISK_BYTES = 1 << 20
"""Room for the records of the smallest run; a checkpoint that does not fit later is a warning."""

START_FAILURES = (ExitCode.USAGE, ExitCode.NO_SPACE, ExitCode.INCOMPATIBLE)
"""A run that never trained and ended with one of these leaves no run directory."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunOptions:
    """The command line of a training run."""

    algo: str | None
    task: str | None
    sim: str | None
    overrides: tuple[str, ...] = ()
    job: str | None = None
    resume: str | None = None
    plain: bool = False
    debug: str | None = None
    """Role to be started by hand."""
    detached: bool = False
    """This process is already the background half of --detach."""


def run_training(options: RunOptions, console: Console, environ: Mapping[str, str]) -> int:
    """Train; the exit code."""
    config = build_config(options, environ)
    _arm_fault(config, environ)
    job = options.job or default_job_name(config.algo.algo, config.training.task_name)
    validate_job_name(job)
    # Before the first object exists: a signal must never fall between creation and removal.
    with SignalPipe(ignore_hangup=options.detached) as signals:
        run = _TrainingRun(config, job, options, console, environ, signals)
        return run.run()


def _arm_fault(config: Config, environ: Mapping[str, str]) -> None:
    """`UNILAB_FAULT`, checked here for every role before anything exists."""
    fault = read_fault(environ)
    if fault is None:
        return
    require_occurs(fault, config.algo.algo)
    if fault.role == "launcher":
        arm(fault, places(fault))


def build_config(options: RunOptions, environ: Mapping[str, str]) -> Config:
    """Compose and check; ConfigError, or StartError for a run that cannot be resumed."""
    if options.resume is None:
        if options.algo is None or options.task is None:
            raise ConfigError("--algo and --task are needed (or --resume RUN_DIR)")
        config = compose(
            options.algo,
            options.task,
            options.sim or "mujoco",
            list(options.overrides),
            environ=environ,
        )
        config = _resolve_load_run(config)
    else:
        config = _resumed_config(options, Path(options.resume), environ)
    has_gpu = detect_profile(environ) == "gpu"
    reasons = unsupported_settings(config, has_gpu=has_gpu)
    if reasons:
        raise ConfigError("; ".join(reasons))
    return config


def _resumed_config(options: RunOptions, run_dir: Path, environ: Mapping[str, str]) -> Config:
    """The configuration of the earlier run, resuming from it, with this command line on top."""
    try:
        base = load_run(run_dir)["config"]
    except RunDirError as error:
        raise StartError(ExitCode.USAGE, f"--resume: {error}") from None
    except CheckpointError as error:
        raise StartError(ExitCode.INCOMPATIBLE, f"--resume: {error}") from None
    if not has_checkpoint(run_dir):
        raise StartError(ExitCode.INCOMPATIBLE, f"--resume: {run_dir} holds no checkpoint")
    training = base["training"]
    names = {
        "algo": base["algo"]["algo"],
        "task": training["task_name"],
        "sim": training["sim_backend"],
    }
    for flag, name in names.items():
        asked = getattr(options, flag)
        if asked is not None and asked != name:
            raise ConfigError(f"--{flag} {asked} contradicts the resumed run, which has {name}")
    training["log_dir"] = None  # the old directory stays as it is
    base["algo"].update(resume=True, load_run=str(run_dir.resolve()))
    return compose(**names, overrides=list(options.overrides), base=base, environ=environ)


def _resolve_load_run(config: Config) -> Config:
    """`algo.resume` with a run's name, a path, or -1 for the newest: always a path afterwards."""
    if not config.algo.resume:
        return config
    folder, asked = runs_folder(config), config.algo.load_run
    if asked in (-1, "-1"):
        run_dir = newest_run(folder)
        if run_dir is None:
            raise ConfigError(f"algo.resume: no run with a checkpoint in {folder}")
    else:
        run_dir = next((p for p in (folder / str(asked), Path(str(asked))) if p.is_dir()), None)
        if run_dir is None:
            raise ConfigError(f"algo.load_run: {asked} is neither a run in {folder} nor a path")
        if not has_checkpoint(run_dir):
            raise StartError(ExitCode.INCOMPATIBLE, f"algo.load_run: {run_dir} has no checkpoint")
    return replace(config, algo=replace(config.algo, load_run=str(run_dir.resolve())))


class _TrainingRun:
    """The state of one run of the launcher, from the claim of the name to the last line."""

    def __init__(
        self,
        config: Config,
        job: str,
        options: RunOptions,
        console: Console,
        environ: Mapping[str, str],
        signals: SignalPipe,
    ) -> None:
        self._config = config
        self._job = job
        self._options = options
        self._console = console
        self._environ = environ
        self._signals = signals
        self._clock = MonotonicClock()
        self._started_ns = self._clock.now_ns()
        self._started_utc = now_utc()
        self._summary: dict[str, Any] = {}

    def run(self) -> int:
        # First: the claim removes the records that tell which job a dead run belonged to.
        reclaimed = self._collect_garbage()
        folder = self._claim()
        try:
            run_dir = self._create_run_dir()
        except BaseException:
            folder.release({"state": "ended", "reason": "did not start", "exit_code": None})
            raise
        self._console.say(f"run directory: {run_dir}")
        for line in reclaimed:
            self._console.say(line)
        run_id = new_run_id()
        files = JobFiles(
            folder=folder,
            run_id=run_id,
            run_dir=run_dir,
            config=self._config,
            threads=plan_threads(
                self._config.training.torch_threads,
                available_cores(),
                self._config.algo.overlap,
            ),
            trace=trace_facts(self._config, run_dir, self._environ),
            debug=self._options.debug,
        )
        facts = RunFacts(
            job=self._job,
            run_id=run_id,
            run_dir=run_dir,
            started_utc=self._started_utc,
            started_ns=self._started_ns,
            pid=os.getpid(),
        )
        trace = self._open_trace(folder, facts)
        try:
            return self._train_and_play(files, facts, trace)
        finally:
            trace.close()

    def _train_and_play(self, files: JobFiles, facts: RunFacts, trace: LaunchTrace) -> int:
        outcome = self._train(files, facts, trace)
        if outcome.keep_names:
            self._console.warn(f"{outcome.reason}; names are left for `unilab-launch gc`")
            return outcome.exit_code
        if outcome.failure is None:
            if outcome.status == "completed" and not self._config.training.no_play:
                run_dir = facts.run_dir
                self._console.say(f"{outcome.reason}; evaluating and filming the policy")
                with trace.evaluation():
                    record_video(
                        run_dir, self._config.training, self._console, self._environ, self._signals
                    )
                upload_video(
                    run_dir, self._config.training, self._console, self._environ, self._signals
                )
            # Always the last line of a run that did not fail: scripts look for it there.
            line = last_line(outcome, self._summary) if self._summary else outcome.reason
            self._console.say(line)
        return outcome.exit_code

    # ---- start

    def _open_trace(self, folder: JobFolder, facts: RunFacts) -> LaunchTrace:
        trace = open_trace(
            self._config,
            folder=folder,
            run_id=facts.run_id,
            run_dir=facts.run_dir,
            role="launcher",
            environ=self._environ,
        )
        target = target_of(self._config, facts.run_dir, self._environ)
        printed = target is not None and target.echo_progress
        return LaunchTrace(trace, self._console, printed=printed)

    def _claim(self) -> JobFolder:
        info = {"algo": self._config.algo.algo, "task": self._config.training.task_name}
        try:
            return JobFolder.claim(self._job, info)
        except NameInUse as error:
            raise StartError(ExitCode.NAME_IN_USE, str(error)) from None
        except ValueError as error:
            raise StartError(ExitCode.USAGE, str(error)) from None
        except OSError as error:
            raise StartError(_space_or_usage(error), f"job registry: {error}") from None

    def _collect_garbage(self) -> list[str]:
        try:
            runs = collect_garbage().runs
        except ValueError as error:
            raise StartError(ExitCode.USAGE, str(error)) from None
        except OSError as error:
            raise StartError(_space_or_usage(error), f"job registry: {error}") from None
        lines: list[str] = []
        for run in runs:
            whose = f" ({run['job']})" if run["job"] else ""
            lines.append(f"reclaimed {len(run['names'])} objects of run {run['run_id']}{whose}")
        return lines

    def _create_run_dir(self) -> Path:
        try:
            run_dir = create_run_dir(self._config)
        except RunDirError as error:
            raise StartError(ExitCode.USAGE, str(error)) from None
        except OSError as error:
            raise StartError(
                ExitCode.NO_SPACE, f"cannot create the run directory: {error}"
            ) from None
        free_bytes = shutil.disk_usage(run_dir).free
        if free_bytes < MIN_DISK_BYTES:
            shutil.rmtree(run_dir, ignore_errors=True)
            raise StartError(
                ExitCode.NO_SPACE,
                f"{run_dir}: need {MIN_DISK_BYTES} bytes on this disk, {free_bytes} bytes free",
            )
        return run_dir

    # ---- training

    def _train(self, files: JobFiles, facts: RunFacts, trace: LaunchTrace) -> Outcome:
        children: list[ChildProcess | DebuggedProcess] = []
        panel: Panel | None = None
        try:
            self._write_run_config(facts)
            files.prepare()
            self._register(files)
            children = self._spawn(files, echo=trace.printed)
            panel = self._open_panel()
            loop = Loop(
                files=files,
                children=children,
                console=self._console,
                signals=self._signals,
                panel=panel,
                clock=self._clock,
                on_attachable=lambda: self._attachable(trace),
            )
            outcome = loop.run()
            panel = loop.panel
        except (NoSpace, OSError, IpcError) as error:
            self._undo(files, facts, children, panel, error)
            code = int(ExitCode.PROCESS_DIED) if children else _start_code(error)
            raise StartError(code, f"launcher: {error}") from None
        except BaseException as error:
            self._undo(files, facts, children, panel, error)
            raise
        self._end(files, facts, outcome, panel)
        return outcome

    def _write_run_config(self, facts: RunFacts) -> None:
        write_json_atomic(
            RunPaths(facts.run_dir).config,
            {
                "version": 1,
                "job": facts.job,
                "run_id": facts.run_id,
                "started_utc": facts.started_utc,
                "algo": self._config.algo.algo,
                "task": self._config.training.task_name,
                "sim": self._config.training.sim_backend,
                "command": sys.argv,
                "resumed_from": self._config.algo.load_run if self._config.algo.resume else None,
                "versions": software_versions(),
                "config": self._config.to_dict(),
            },
        )

    def _register(self, files: JobFiles) -> None:
        log = self._console.keep_log(RunPaths(files.run_dir).log("launcher", 0))
        faulthandler.register(STACKS_SIGNAL, file=log, all_threads=True)
        beat = files.beat()
        beat.register()
        beat.phase("startup/spawn")

    def _spawn(self, files: JobFiles, *, echo: bool) -> list[ChildProcess | DebuggedProcess]:
        run = RunPaths(files.run_dir)
        children: list[ChildProcess | DebuggedProcess] = []
        with ExitStack() as stack:
            # Progress lines of the children; under a panel they go into each role's log.
            terminal = not self._panel_wanted() and not self._options.detached
            echo_fd = self._console.duplicate_output() if echo and terminal else None
            if echo_fd is not None:
                stack.callback(os.close, echo_fd)
            try:
                for spec in plan(self._config, self._job, files.threads):
                    if spec.role == self._options.debug:
                        children.append(DebuggedProcess(spec, run, files.board()))
                        self._console.say(f"start the {spec.role} in another terminal:")
                        self._console.say(f"  {debug_command(spec, self._environ)}")
                        continue
                    child = ChildProcess(spec, run, self._environ, echo_fd=echo_fd)
                    children.append(child)
            except BaseException:
                _kill(children)  # those that did start
                raise
        return children

    def _panel_wanted(self) -> bool:
        wanted = (
            not self._options.plain and self._options.debug is None and not self._options.detached
        )
        return wanted and can_draw(self._environ)

    def _open_panel(self) -> Panel | None:
        if not self._panel_wanted():
            self._console.say(f"job {self._job}: unilab-monitor {self._job} attaches to it")
            return None
        panel = Panel(self._job, self._environ)
        self._console.hold()
        return panel

    def _attachable(self, trace: LaunchTrace) -> None:
        trace.begin()
        if self._options.detached:
            self._console.say(f"job {self._job} runs in the background")
            self._console.go_silent()

    # ---- end

    def _end(self, files: JobFiles, facts: RunFacts, outcome: Outcome, panel: Panel | None) -> None:
        if outcome.keep_names:
            if panel is not None:
                panel.send_signal(signal.SIGTERM)
                panel.leave()
                self._console.release()
            self._summarise(files, facts, outcome)
            return
        ended = ended_record(files, facts, outcome, now_utc())
        try:
            files.beat().phase("finalize/summary")
            self._summarise(files, facts, outcome)
            files.beat().phase("finalize/cleanup")
        finally:  # whatever the summary meets, the names go and the terminal comes back
            self._remove_names(files, facts, ended)
            if panel is not None:
                panel.leave()
                self._console.release()
        self._last_words(facts, outcome)

    def _summarise(self, files: JobFiles, facts: RunFacts, outcome: Outcome) -> None:
        try:
            self._summary = write_ending(files, facts, outcome, self._clock)
        except OSError as error:
            self._console.warn(f"cannot write the summary of {facts.run_dir}: {error}")

    def _remove_names(self, files: JobFiles, facts: RunFacts, ended: dict[str, Any]) -> None:
        try:
            files.close(ended)
        except (OSError, IpcError) as error:
            self._console.warn(f"cannot remove every name of run {facts.run_id}: {error}")
            note_cleanup_error(facts.run_dir, error)

    def _last_words(self, facts: RunFacts, outcome: Outcome) -> None:
        if outcome.failure is not None:
            self._show_traceback(outcome)
            self._console.warn(outcome.reason)
            self._show_log_of(facts, outcome)
        for text in outcome.later:
            self._console.warn(f"also: {text}")
        if not outcome.trained and outcome.exit_code in START_FAILURES:
            shutil.rmtree(facts.run_dir, ignore_errors=True)

    def _show_traceback(self, outcome: Outcome) -> None:
        """The environment is the user's code: its own traceback first, the original on top."""
        if outcome.exit_code != ExitCode.ENV_EXCEPTION:
            return
        for child_exit in outcome.exits:
            if child_exit.error is not None and child_exit.returncode == outcome.exit_code:
                for line in str(child_exit.error.get("traceback", "")).splitlines():
                    self._console.warn(sanitize(line, 300))
                return

    def _show_log_of(self, facts: RunFacts, outcome: Outcome) -> None:
        """The last output of a process that gave no reason of its own."""
        failure = outcome.failure
        if failure is None or failure.role == "launcher" or "died:" not in failure.cause:
            return
        log = RunPaths(facts.run_dir).log(failure.role, failure.rank)
        tail = read_tail(log, 10)
        if tail:
            self._console.warn(f"last lines of {log}:")
            for line in tail:
                self._console.warn(f"    {line}")

    def _undo(
        self,
        files: JobFiles,
        facts: RunFacts,
        children: list[ChildProcess | DebuggedProcess],
        panel: Panel | None,
        error: BaseException,
    ) -> None:
        """The launcher itself failed: leave nothing running and nothing named."""
        exits = _kill(children)
        if children:  # the board and the rings exist, so the run can be accounted for
            self._summarise(files, facts, _launcher_failure(error, exits))
        ended = {
            "state": "ended",
            "reason": f"the launcher failed: {error}",
            "exit_code": _start_code(error),
            "job": facts.job,
            "run_id": facts.run_id,
        }
        files.close(ended)
        if panel is not None:
            panel.leave()
            self._console.release()
        if not children:
            shutil.rmtree(facts.run_dir, ignore_errors=True)


def _kill(children: Sequence[ChildProcess | DebuggedProcess]) -> tuple[ChildExit, ...]:
    return tuple(exit_ for child in reversed(children) if (exit_ := child.end_now()) is not None)


def _launcher_failure(error: BaseException, exits: tuple[ChildExit, ...]) -> Outcome:
    cause = f"failed: {type(error).__name__}: {error}"
    failure = Failure(
        exit_code=_start_code(error),
        role="launcher",
        rank=0,
        pid=os.getpid(),
        cause=cause,
        phase="training/supervise",
    )
    return replace(failed(failure), exits=exits)


def _start_code(error: BaseException) -> int:
    if isinstance(error, NoSpace):
        return int(ExitCode.NO_SPACE)
    if isinstance(error, OSError):
        return _space_or_usage(error)
    if isinstance(error, SegmentCorrupt):  # it was whole when it was made
        return int(ExitCode.PROCESS_DIED)
    return int(ExitCode.INCOMPATIBLE if isinstance(error, IpcError) else ExitCode.PROCESS_DIED)


def _space_or_usage(error: OSError) -> int:
    full = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
    return int(ExitCode.NO_SPACE if error.errno in full else ExitCode.USAGE)
