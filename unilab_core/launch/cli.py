"""unilab-launch (alias train): arguments in, exit code out; every error is one line.

What a command needs is imported after its arguments are parsed: numpy, the IPC layer and hydra
take longer than `--help` may.
"""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from unilab_core.launch.arguments import COMMANDS, command_parser, run_parser


def main() -> None:
    """Entry point of the console scripts."""
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """One command; the exit code."""
    if argv and argv[0] in COMMANDS:
        args = command_parser(argv[0]).parse_args(list(argv[1:]))
        return _guarded(lambda: _run_job_command(argv[0], args))
    args = run_parser().parse_intermixed_args(list(argv))
    if not argv:
        run_parser().print_help()
        return 2
    return _guarded(lambda: _run_training(args, argv))


def _run_job_command(command: str, args: argparse.Namespace) -> int:
    from unilab_core.launch import jobs

    if command == "gc":
        return jobs.collect(dry_run=args.dry_run, as_json=args.json)
    if command == "list":
        return jobs.show(as_json=args.json)
    if command == "stop":
        return jobs.stop(args.job)
    return jobs.print_stacks(args.job)


def _run_training(args: argparse.Namespace, argv: Sequence[str]) -> int:
    from unilab_core.launch.console import Console
    from unilab_core.launch.detach import run_detached
    from unilab_core.launch.dry_run import run_dry
    from unilab_core.launch.run_command import RunOptions, run_training

    options = RunOptions(
        algo=args.algo,
        task=args.task,
        sim=args.sim,
        overrides=tuple(args.overrides),
        job=args.job,
        resume=args.resume,
        plain=args.plain,
        debug=args.debug,
        detached=args.detached,
    )
    if args.debug and (args.detach or args.dry_run):
        raise ValueError("--debug waits for you in another terminal: not with --detach, --dry-run")
    console = Console()
    if args.dry_run:
        return run_dry(options, console, os.environ)
    if args.detach and not args.detached:
        return run_detached(options, argv, os.environ)
    return run_training(options, console, os.environ)


def _guarded(command: Callable[[], int]) -> int:
    """Errors that a user can act on, as one line."""
    from unilab_core.launch.start_error import StartError
    from unilab_core.run.exit_codes import ExitCode, exit_code_of_signal
    from unilab_core.run.failures import exit_code_of
    from unilab_core.telemetry.plain import sanitize
    from unilab_ipc.errors import IpcError

    try:
        return command()
    except StartError as error:
        return _complain(sanitize(str(error), 1000), error.code)
    except ValueError as error:
        return _complain(sanitize(str(error), 1000), int(ExitCode.USAGE))
    except IpcError as error:
        return _complain(sanitize(str(error), 1000), exit_code_of(error))
    except KeyboardInterrupt:
        return exit_code_of_signal(signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - the process entry point
        traceback.print_exc()
        what = f"failed: {type(error).__name__}: {error}"
        return _complain(sanitize(what, 1000), int(ExitCode.PROCESS_DIED))


def _complain(message: str, code: int) -> int:
    print(f"unilab-launch: {message}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    main()
