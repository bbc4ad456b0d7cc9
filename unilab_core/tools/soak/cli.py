"""``unilab-soak --out DIR [options] -- COMMAND ...``: run for long, watch, judge.

Exit codes: 0 passed, 1 failed, 2 usage, 129/130/143 the soak itself was interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from unilab_core.run.exit_codes import ExitCode, exit_code_of_signal
from unilab_core.telemetry.plain import sanitize
from unilab_core.tools.soak.artifact import MonitorSettings
from unilab_core.tools.soak.monitor import ARTIFACT_NAME, SoakOptions, run_soak

FAILED = 1


def main(argv: list[str] | None = None) -> int:
    """Soak one command; its artifact is DIR/soak.json, its console DIR/soak-console.log."""
    try:
        options, as_json = _options(sys.argv[1:] if argv is None else argv)
        verdict = run_soak(options)
    except (ValueError, OSError) as error:
        print(f"unilab-soak: {sanitize(str(error), 1000)}", file=sys.stderr)
        return int(ExitCode.USAGE)
    artifact = options.out / ARTIFACT_NAME
    word = "passed" if verdict.passed else f"failed ({verdict.classification}): {verdict.reason}"
    print(f"{sanitize(word, 2000)}  [{artifact}]")
    if as_json:
        print(
            json.dumps(
                {
                    "passed": verdict.passed,
                    "failure_reason": verdict.reason,
                    "failure_classification": verdict.classification,
                    "artifact": str(artifact),
                }
            )
        )
    if verdict.signum is not None:
        return exit_code_of_signal(verdict.signum)
    return int(ExitCode.OK) if verdict.passed else FAILED


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    defaults = MonitorSettings()
    made = argparse.ArgumentParser(
        prog="unilab-soak",
        description="Run a command for long, sample what it uses, judge how it ended.",
    )
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="artifact and console")
    made.add_argument("--progress-dir", type=Path, metavar="DIR", help="folder that must grow")
    made.add_argument("--context", action="append", default=[], metavar="KEY=VALUE")
    made.add_argument("--json", action="store_true", help="one JSON object as the last line")
    for name, meaning in (
        ("sample-interval-s", "between two samples"),
        ("startup-timeout-s", "until the first sign of progress"),
        ("stale-progress-s", "longest standstill afterwards"),
        ("post-shutdown-grace-s", "for the last processes to leave"),
        ("min-duration-s", "a shorter run fails"),
    ):
        default = getattr(defaults, name.replace("-", "_"))
        made.add_argument(
            f"--{name}", type=float, default=default, metavar="S", help=f"{meaning} ({default:g})"
        )
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    return made


def _options(argv: list[str]) -> tuple[SoakOptions, bool]:
    args = parser().parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ValueError("no command; give it after --, for example: -- unilab-launch --algo sac")
    settings = MonitorSettings(
        sample_interval_s=args.sample_interval_s,
        startup_timeout_s=args.startup_timeout_s,
        stale_progress_s=args.stale_progress_s,
        post_shutdown_grace_s=args.post_shutdown_grace_s,
        min_duration_s=args.min_duration_s,
    )
    pairs = [text.partition("=") for text in args.context]
    for text, (key, equals, _) in zip(args.context, pairs, strict=True):
        if not (key and equals):
            raise ValueError(f"--context: got {text!r}, expected KEY=VALUE")
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if (out / ARTIFACT_NAME).exists():
        raise ValueError(f"{out / ARTIFACT_NAME} exists; give another --out")
    progress_dir = None if args.progress_dir is None else args.progress_dir.resolve()
    if progress_dir is not None and not progress_dir.is_dir():
        raise ValueError(f"--progress-dir: {progress_dir} is not a directory")
    options = SoakOptions(
        command=tuple(command),
        out=out,
        settings=settings,
        progress_dir=progress_dir,
        context={key: value for key, _, value in pairs},
    )
    return options, args.json


if __name__ == "__main__":
    sys.exit(main())
