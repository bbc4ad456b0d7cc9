"""The arguments of unilab-launch. Light on purpose: `--help` imports nothing else."""

import argparse
import sys
from typing import NoReturn

COMMANDS = ("gc", "list", "stop", "stacks")

DESCRIPTION = """\
Train a policy: one process steps the environments, one learns, this one supervises both.

  unilab-launch --algo sac --task go2_joystick_flat [KEY=VALUE ...]
  unilab-launch --resume RUN_DIR [KEY=VALUE ...]
  unilab-launch gc | list | stop JOB | stacks JOB
"""

EPILOG = """\
KEY=VALUE are settings, for example algo.num_envs=512 training.max_wall_time_s=300; a key that does
not exist is an error that names the nearest one.

exit codes: 0 done, 2 usage, 3 job name in use, 4 not enough memory or disk, 5 incompatible or
damaged file, 6 nothing to attach to, 10 a process died, 11 environment exception, 12 value not
finite, 13 hang, 14 last checkpoint not written, 129/130/143 after SIGHUP/SIGINT/SIGTERM
"""


class OneLineParser(argparse.ArgumentParser):
    """An argument error is one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage around it."""
        print(f"{self.prog}: {message} (see --help)", file=sys.stderr, flush=True)
        raise SystemExit(2)


def run_parser() -> argparse.ArgumentParser:
    """Arguments of a training run."""
    parser = OneLineParser(
        prog="unilab-launch",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--algo", metavar="NAME", help="algorithm: ppo, appo, sac or flashsac")
    parser.add_argument(
        "--task", metavar="NAME", help="task, for example go2_joystick_flat or gym:Pendulum-v1"
    )
    parser.add_argument("--sim", metavar="NAME", help="physics backend (default mujoco)")
    parser.add_argument("--job", metavar="NAME", help="name of the job (default: a fresh one)")
    parser.add_argument("--resume", metavar="RUN_DIR", help="continue from an earlier run")
    parser.add_argument(
        "--dry-run", action="store_true", help="print processes, segments and sizes, start nothing"
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of the panel")
    parser.add_argument(
        "--detach", action="store_true", help="run in the background once training has started"
    )
    parser.add_argument(
        "--debug",
        choices=("collector", "learner"),
        help="start everything but this role and print its command, for a debugger; no time limits",
    )
    parser.add_argument("--detached", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings")
    return parser


def command_parser(command: str) -> argparse.ArgumentParser:
    """Arguments of gc, list, stop and stacks."""
    descriptions = {
        "gc": "Remove shared memory and registry entries of runs that are provably dead.",
        "list": "Jobs of this user: starting, running, ended, dead.",
        "stop": "Ask a job to finish its iteration, save and end; waits until it has.",
        "stacks": "Print the Python stacks of every process of a job, without disturbing it.",
    }
    parser = OneLineParser(prog=f"unilab-launch {command}", description=descriptions[command])
    if command in ("gc", "list"):
        parser.add_argument("--json", action="store_true", help="one JSON object")
    else:
        parser.add_argument("job", metavar="JOB", help="name of the job")
    if command == "gc":
        parser.add_argument("--dry-run", action="store_true", help="only report")
    return parser
