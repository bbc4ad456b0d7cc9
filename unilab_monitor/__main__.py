"""`unilab-monitor [JOB | RUN_DIR | TRACE_DIR]`.

The launcher starts `python -m unilab_monitor --panel --job J` as its panel.

Exit codes: 0 also for a job that has ended; 2 for a wrong use; 5 when the job was made by another
version; 6 when there is nothing to show.
"""

import argparse
import json
import locale
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from unilab_core.run.exit_codes import ExitCode
from unilab_core.telemetry.plain import sanitize
from unilab_ipc.errors import IpcError, SegmentMismatch
from unilab_ipc.peers import set_parent_death_signal
from unilab_monitor.feed import Feed
from unilab_monitor.glyphs import ASCII, Glyphs, glyphs_for
from unilab_monitor.model import Model
from unilab_monitor.plain import follow, text_view
from unilab_monitor.snapshot import snapshot
from unilab_monitor.sources import LiveSource, Source
from unilab_monitor.stop import LauncherStop
from unilab_monitor.target import NothingToShow, open_job, resolve, trace_directory
from unilab_monitor.view import View


def main(argv: Sequence[str] | None = None) -> None:
    """Show one job; ends the process."""
    arguments = parser()
    args = arguments.parse_args(argv)
    if args.panel and args.job is None:
        arguments.error("--panel needs --job")
    sys.exit(run(args))


def run(args: argparse.Namespace) -> int:
    """What the arguments ask for; the exit code."""
    traces = None if args.panel else trace_directory(args.target)
    if traces is not None:
        return _show_traces(traces, args)
    try:
        source = open_job(args.job) if args.panel else resolve(args.target)
    except NothingToShow as error:
        return _complain(error, ExitCode.NOTHING)
    except SegmentMismatch as error:
        return _complain(error, ExitCode.INCOMPATIBLE)
    except (OSError, IpcError) as error:
        return _complain(error, ExitCode.NOTHING)
    try:
        if args.once or args.json:
            return _once(source, args)
        if args.plain or not _can_draw():
            return _plain(source, args)
        return _draw(source, args)
    except IpcError as error:
        return _complain(error, ExitCode.INCOMPATIBLE)
    except BrokenPipeError:
        # Nobody reads any more (`| head`). Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    finally:
        source.close()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    arguments = argparse.ArgumentParser(
        prog="unilab-monitor",
        description="Watch a training job, running or ended. Any number of monitors may look at "
        "the same job; none of them slows it down.",
    )
    arguments.add_argument(
        "target",
        nargs="?",
        metavar="JOB | RUN_DIR | TRACE_DIR",
        help="a job's name, a run directory, or a directory of RL traces (default: the only or the "
        "newest job)",
    )
    arguments.add_argument(
        "--once", action="store_true", help="show the job as it is now, and leave"
    )
    arguments.add_argument("--json", action="store_true", help="one JSON object, once")
    arguments.add_argument("--plain", action="store_true", help="plain lines instead of a screen")
    arguments.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    arguments.add_argument("--panel", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--job", help=argparse.SUPPRESS)
    return arguments


def _show_traces(path: Path, args: argparse.Namespace) -> int:
    """The pages about a directory of RL traces, or its figures once."""
    from unilab_monitor.pages.trace_app import main_once, run_trace_app

    if args.once or args.json or args.plain or not _can_draw():
        return main_once(path, json=args.json)
    return run_trace_app(path)


def _once(source: Source, args: argparse.Namespace) -> int:
    view = Model().fold(source.poll())
    if args.json:
        print(json.dumps(snapshot(view), allow_nan=False), flush=True)
        return ExitCode.OK
    width = min(shutil.get_terminal_size((100, 40)).columns, 140)
    print(text_view(view, max(width, 60), _glyphs(args)), flush=True)
    return ExitCode.OK


def _plain(source: Source, args: argparse.Namespace) -> int:
    del args
    signal.signal(signal.SIGTERM, _leave_quietly)
    try:
        follow(source, sys.stdout)
    except KeyboardInterrupt:
        return ExitCode.OK
    return ExitCode.OK


def _draw(source: Source, args: argparse.Namespace) -> int:
    # Textual is the heaviest import here, and --json and --plain do without it.
    from unilab_monitor.app import MonitorApp
    from unilab_monitor.messages import ViewReady

    failures: list[IpcError] = []

    def deliver(view: View) -> None:
        app.post_message(ViewReady(view))

    def fail(error: IpcError) -> None:
        failures.append(error)
        app.call_from_thread(app.exit)

    feed = Feed(source, deliver=deliver, fail=fail)
    app = MonitorApp(
        _glyphs(args),
        request_stop=_launcher_stop(source) if args.panel else None,
        leave_when_ended=args.panel,
        on_ready=feed.start,
    )
    try:
        app.run(mouse=False)
    finally:
        feed.close()
    if failures:
        return _complain(failures[0], ExitCode.INCOMPATIBLE)
    # Textual swallows exceptions of the application: only its return code tells.
    return app.return_code or ExitCode.OK


def _launcher_stop(source: Source) -> LauncherStop | None:
    """How the panel asks its launcher to stop; also ties the panel's life to the launcher's."""
    if not isinstance(source, LiveSource):
        return None
    source.attach()
    # The terminal's Ctrl-C arrives as a key; a SIGINT for the whole group is the launcher's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    row = source.launcher()
    if row is not None and row.pid == os.getppid():
        set_parent_death_signal(row.pid)
    return LauncherStop(source.launcher)


def _can_draw() -> bool:
    """Textual draws on stderr and reads stdin; a redirected stdout means that lines are wanted."""
    if os.environ.get("TERM", "dumb") == "dumb":
        return False
    return all(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
    )


def _glyphs(args: argparse.Namespace) -> Glyphs:
    if args.ascii:
        return ASCII
    encoding = getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)
    return glyphs_for(encoding=encoding, environ=os.environ)


def _leave_quietly(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _complain(error: Exception, code: ExitCode) -> int:
    print(f"unilab-monitor: {sanitize(str(error))}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    main()
