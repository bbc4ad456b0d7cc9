"""`unilab-eval`: play a policy through the deterministic evaluation of its task.

    unilab-eval RUN_DIR | POLICY_FILE [--checkpoint C] [--physics P] [--video [FILE]]
        [--video-steps N] [--video-envs N] [--export-onnx [FILE]] [--viewer] [--json]
    unilab-eval --replay-nan DUMP [--video [FILE]] [--json]

Diagnostics go to standard error; with `--json` the last line of standard output is one object.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.json_files import finite
from unilab_core.telemetry.plain import sanitize

if TYPE_CHECKING:
    from unilab_core.config.env import EnvConfig
    from unilab_core.nets.policy_file import Policy
    from unilab_core.tasks.task import VelocityEvaluation

DEFAULT_VIDEO = "play_video.mp4"
DEFAULT_ONNX = "policy.onnx"


class OnnxTargetError(ValueError):
    """The file that was asked for cannot be written."""


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.viewer and (args.json or args.video is not None or args.export_onnx is not None):
        parser.error("--viewer shows the policy and nothing else; leave the other outputs out")
    _check_sources(parser, args)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny products: more threads only wait
    from unilab_core.config.errors import ConfigError
    from unilab_core.nets.onnx_file import OnnxExportError, OnnxUnavailableError
    from unilab_core.run.failures import CheckpointError, RunDirError
    from unilab_core.tools.offscreen import OffscreenUnavailableError, prepare_offscreen

    try:
        if args.viewer:
            return _view(args)
        if args.video is not None:
            prepare_offscreen()
        if args.replay_nan is not None:
            return _replay(args)
        _run(args)
    except (OffscreenUnavailableError, OnnxUnavailableError, OnnxTargetError) as error:
        return _fail(error, ExitCode.USAGE)
    except RunDirError as error:
        return _fail(error, ExitCode.NOTHING)
    except (CheckpointError, ConfigError, OnnxExportError) as error:
        return _fail(error, ExitCode.INCOMPATIBLE)
    return ExitCode.OK


def _check_sources(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Either a policy to play or a dump to replay."""
    if args.replay_nan is None:
        if args.source is None:
            parser.error("a run directory or a policy file is needed (or --replay-nan DUMP)")
        return
    others = ("source", "checkpoint", "physics", "export_onnx", "viewer")
    if any(getattr(args, name) not in (None, False) for name in others):
        parser.error("--replay-nan shows a dump: only --video and --json go with it")


def _replay(args: argparse.Namespace) -> int:
    """Show a dump of the NaN guard."""
    from unilab_core.run.nan_dump import NanDumpError, read_nan_dump
    from unilab_core.tools.replay_nan import replay_report, replay_text, replay_video

    path: Path = args.replay_nan
    try:
        dump = read_nan_dump(path)
    except FileNotFoundError:
        return _fail(ValueError(f"{path}: no such file"), ExitCode.NOTHING)
    except NanDumpError as error:
        return _fail(error, ExitCode.INCOMPATIBLE)
    report = replay_report(dump)
    if args.video is not None:
        target = Path(args.video) if args.video else path.with_suffix(".mp4")
        try:
            replay_video(dump, target)
        except ValueError as error:
            return _fail(error, ExitCode.USAGE)
        report["video"] = str(target)
    if args.json:
        print(json.dumps(finite(report)))
        return ExitCode.OK
    print(replay_text(report))
    if "video" in report:
        print(f"  video          {report['video']}")
    return ExitCode.OK


def _run(args: argparse.Namespace) -> None:
    """Load, judge, print, film."""
    from unilab_core.config.gym_env import is_gym_task
    from unilab_core.tools.policy_source import find_policy

    policy, path = find_policy(args.source, args.checkpoint)
    judged = _judge_gym if is_gym_task(policy.contract["task"]) else _judge_robot
    report, text = judged(policy, args)
    report |= {"checkpoint": str(path), "iteration": policy.contract["iteration"]}
    if args.export_onnx is not None:
        report["onnx"] = str(_export_onnx(policy, args))
    if args.json:
        print(json.dumps(report))
        return
    print(text)
    print(f"  checkpoint     {path} (iteration {report['iteration']})")
    for name in ("video", "onnx"):
        if name in report:
            print(f"  {name:<14} {report[name]}")


def _view(args: argparse.Namespace) -> int:
    """Show the policy in a window in place of judging it."""
    from unilab_core.config.env import EnvConfig
    from unilab_core.config.gym_env import GymEnvConfig, is_gym_task
    from unilab_core.tools import viewer
    from unilab_core.tools.policy_source import find_policy

    try:
        viewer.require_display()
        policy, path = find_policy(args.source, args.checkpoint)
        task, env = policy.contract["task"], policy.contract["env"]
        print(f"{task}: {path}; close the window or press Ctrl-C to end", file=sys.stderr)
        if is_gym_task(task):
            from unilab_core.tools.gym_evaluate import view_gym

            view_gym(policy.act, task, GymEnvConfig.from_dict(env))
        else:
            config = EnvConfig.from_dict(env)
            viewer.view_robot(policy.act, task, config, physics=args.physics or config.physics)
    except viewer.NoDisplayError as error:
        return _fail(error, ExitCode.USAGE)
    except KeyboardInterrupt:  # the other way to leave a window
        print(file=sys.stderr)
    return ExitCode.OK


def _judge_robot(policy: "Policy", args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Tracking errors over the task's grid of commands."""
    from unilab_core.config.env import EnvConfig
    from unilab_core.tasks.registry import find_task
    from unilab_core.tools.evaluate import evaluate

    task = policy.contract["task"]
    env_config = EnvConfig.from_dict(policy.contract["env"])
    physics = args.physics or env_config.physics
    threads = len(os.sched_getaffinity(0))
    result = evaluate(policy.act, task, env_config, physics, num_threads=threads)
    report = asdict(result)
    if args.video is not None:
        report["video"] = str(_film(policy, task, env_config, physics, args))
    return report, _text(report, find_task(task).evaluation)


def _judge_gym(policy: "Policy", args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Returns of whole episodes."""
    from unilab_core.config.errors import ConfigError
    from unilab_core.config.gym_env import GymEnvConfig
    from unilab_core.tools.gym_evaluate import evaluate_gym, play_gym_video

    task = policy.contract["task"]
    if args.physics is not None:
        raise ConfigError(f"--physics: {task} has its own physics")
    config = GymEnvConfig.from_dict(policy.contract["env"])
    report = asdict(evaluate_gym(policy.act, task, config))
    if args.video is not None:
        target = _video_target(args)
        play_gym_video(
            policy.act, task, config, target, num_steps=args.video_steps, num_envs=args.video_envs
        )
        report["video"] = str(target)
    text = (
        f"{task}: return {report['mean_return']:.1f} +- {report['std_return']:.1f} "
        f"over {report['episodes']} deterministic episodes"
    )
    return report, text


def _film(
    policy: "Policy", task: str, env_config: "EnvConfig", physics: str, args: argparse.Namespace
) -> Path:
    from unilab_core.tools.video import play_video

    target = _video_target(args)
    play_video(
        policy.act,
        task,
        env_config,
        target,
        physics=physics,
        num_steps=args.video_steps,
        num_envs=args.video_envs,
    )
    return target


def _export_onnx(policy: "Policy", args: argparse.Namespace) -> Path:
    from unilab_core.nets.onnx_file import export_onnx

    target = _target(args, args.export_onnx, DEFAULT_ONNX)
    try:
        deviation = export_onnx(policy, target)
    except OSError as error:
        raise OnnxTargetError(f"--export-onnx: cannot write {target}: {error.strerror}") from None
    print(f"wrote {target}, at most {deviation:.1g} from torch", file=sys.stderr)
    return target


def _video_target(args: argparse.Namespace) -> Path:
    target = _target(args, args.video, DEFAULT_VIDEO)
    print(f"filming {target} ...", file=sys.stderr)
    return target


def _target(args: argparse.Namespace, asked: str, default: str) -> Path:
    """As asked for, or inside the run directory, or beside the policy file."""
    source: Path = args.source
    folder = source if source.is_dir() else source.parent
    return Path(asked) if asked else folder / default


def _text(report: dict[str, Any], judge: "VelocityEvaluation") -> str:
    verdict = "success" if report["success"] else "no success"
    figures = (
        ("error_vel_xy", "m/s", judge.max_error_vel_xy),
        ("error_vel_yaw", "rad/s", judge.max_error_vel_yaw),
        ("fall_rate", "", judge.max_fall_rate),
    )
    lines = [
        f"{report['task']}, {report['physics']} physics: {verdict}",
        *(
            f"  {name:<14} {_number(report[name])} {unit:<6} must be below {limit:.2f}"
            for name, unit, limit in figures
        ),
        f"  mean_reward    {report['mean_reward']:.2f} per episode, {report['episodes']} episodes",
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "  n/a" if value is None else f"{value:.3f}"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _fail(error: Exception, code: ExitCode) -> int:
    print(f"unilab-eval: {sanitize(str(error), 1000)}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unilab-eval",
        description="Play a policy through the deterministic evaluation of its task.",
    )
    parser.add_argument(
        "source", type=Path, nargs="?", metavar="RUN_DIR", help="run directory or policy file"
    )
    parser.add_argument(
        "--replay-nan",
        type=Path,
        metavar="DUMP",
        help="show a dump of the NaN guard (nan_guard/*.npz of a run) in place of a policy",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="C",
        help="of a run: an iteration, 'best', or a file name (default: the newest policy)",
    )
    parser.add_argument(
        "--physics", choices=("fast", "reference"), help="contact model (default: the run's)"
    )
    parser.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="FILE",
        help=f"also film the policy (default file: {DEFAULT_VIDEO} in the run directory)",
    )
    parser.add_argument(
        "--video-steps", type=_positive, default=500, metavar="N", help="its control steps (500)"
    )
    parser.add_argument(
        "--video-envs", type=_positive, default=1, metavar="N", help="environments in it (1)"
    )
    parser.add_argument(
        "--export-onnx",
        nargs="?",
        const="",
        metavar="FILE",
        help=f"also write the policy for other runtimes (default file: {DEFAULT_ONNX})",
    )
    parser.add_argument(
        "--viewer",
        action="store_true",
        help="watch the policy in a window, where there is a display, in place of judging it",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
