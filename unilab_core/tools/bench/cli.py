"""``unilab-bench NAME [--json]``: run a benchmark, print its table and whether its promise holds.

Exit codes: 0 the promise holds, 1 it does not or the measured job has failed, 2 usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from unilab_core.config.errors import ConfigError
from unilab_core.telemetry.plain import sanitize
from unilab_core.telemetry.timeline.wire import DamagedTraceError
from unilab_core.tools.bench.launch import LaunchFailedError
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.faults.arguments import add_parsers

# As in watcher_processes.WATCHERS, which `--help` need not import.
WATCHER_KINDS = ("reader", "monitors", "storm")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark named on the command line."""
    args = _parser().parse_args(argv)
    # As an exception, so that what a benchmark has started is stopped and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = args.measure(args)
    except (ConfigError, FileNotFoundError, DamagedTraceError) as error:
        print(f"unilab-bench {args.bench}: {sanitize(str(error), 1000)}", file=sys.stderr)
        return 2
    except LaunchFailedError as error:
        print(f"unilab-bench {args.bench}: {sanitize(str(error), 1000)}", file=sys.stderr)
        return 1
    print(report.table())
    print(f"{report.bench}: {'ok' if report.ok else 'NOT ok'}")
    if args.json:
        print(report.json_line())
    return 0 if report.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="unilab-bench", description="Measure UniLab.")
    names = parser.add_subparsers(dest="bench", required=True, metavar="NAME")

    collector = _add(names, "collector", _collector, "the whole collector against raw physics")
    collector.add_argument("--envs", type=int, nargs="+", default=[64, 256, 1024])
    collector.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    collector.add_argument("--blocks", type=int, default=15)
    collector.add_argument("--block-s", type=float, default=1.0)

    slot = _add(names, "slot", _slot, "inference round trip against a bare doorbell")
    slot.add_argument("--envs", type=int, nargs="+", default=[64, 256, 1024])
    slot.add_argument("--blocks", type=int, default=40)
    slot.add_argument("--block-trips", type=int, default=250)

    startup = _add(names, "startup", _startup, "first tick after torch is imported")
    startup.add_argument("--repeats", type=int, default=5)

    walk = _add(names, "walk", _walk, "seconds until a policy passes the evaluation")
    walk.add_argument("--algo", default="sac")
    walk.add_argument("--task", default="go2_joystick_flat")
    walk.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    walk.add_argument("--train-s", type=float, default=300.0)
    walk.add_argument("--interval-s", type=float, default=10.0)
    walk.add_argument("overrides", nargs="*", metavar="KEY=VALUE")

    learn = _add(names, "learn", _learn, "returns of small tasks against published scores")
    learn.add_argument("--suite", choices=("ci",), default="ci")
    learn.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    learn.add_argument("--algos", nargs="+", default=[], metavar="ALGO")

    timeline = _add(names, "timeline", _timeline, "a Perfetto timeline beside the logged scalars")
    timeline.add_argument("source", type=Path, metavar="RUN_DIR|FILE")

    train = _add(names, "train", _train, "PPO or APPO against physics and products alone")
    train.add_argument("--algo", choices=["ppo", "appo"], required=True)
    train.add_argument("--task", default="go2_joystick_flat")
    train.add_argument("--blocks", type=int, default=3)
    train.add_argument("--block-s", type=float, default=15.0)
    train.add_argument("overrides", nargs="*", metavar="KEY=VALUE")

    cost = _add(names, "timeline-cost", _timeline_cost, "training with the timeline and without")
    cost.add_argument("--pairs", type=int, default=5)
    cost.add_argument("--block-s", type=float, default=10.0)
    _add_job(cost)

    trace = _add(names, "trace", _trace, "training with RL traces against training without")
    trace.add_argument("--blocks", type=int, default=5)
    trace.add_argument("--block-s", type=float, default=15.0)
    _add_job(trace)

    watchers = _add(names, "watchers", _watchers, "training beside monitors and other readers")
    watchers.add_argument(
        "--kinds",
        nargs="+",
        default=WATCHER_KINDS,
        choices=WATCHER_KINDS,
        metavar="KIND",
        help=f"{', '.join(WATCHER_KINDS)}; KEY=VALUE come before this, or after --",
    )
    watchers.add_argument(
        "--apart", action="store_true", help="watchers on the last core, the job on the others"
    )
    watchers.add_argument("--blocks", type=int, default=15)
    watchers.add_argument("--block-s", type=float, default=4.0)
    _add_job(watchers)

    add_parsers(names, _add)
    sequence = _add(names, "sequence", _sequence, "transitions and records: seen once or counted")
    sequence.add_argument("--transitions", type=int, default=10_000_000)
    sequence.add_argument("--envs", type=int, default=64)
    sequence.add_argument("--records", type=int, default=1_000_000)

    busy = _add(names, "busy", _busy, "training beside spinning processes: no false alarm")
    busy.add_argument("--minutes", type=float, default=30.0)
    busy.add_argument("--spinners", type=int, default=8)
    _add_job(busy)
    return parser


def _add(
    names: argparse._SubParsersAction,
    name: str,
    measure: Callable[[argparse.Namespace], BenchReport],
    summary: str,
) -> argparse.ArgumentParser:
    parser = names.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.set_defaults(measure=measure)
    return parser


def _add_job(parser: argparse.ArgumentParser) -> None:
    """Which training is measured, where any will do."""
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--task", default="go2_joystick_flat")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")


# Each benchmark imports its own libraries: `slot` needs neither torch nor mujoco.


def _collector(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import collector

    return collector.run(
        num_envs=args.envs, threads=args.threads, blocks=args.blocks, block_s=args.block_s
    )


def _slot(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import slot

    return slot.run(num_envs=args.envs, blocks=args.blocks, block_trips=args.block_trips)


def _startup(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import startup

    return startup.run(repeats=args.repeats)


def _walk(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import walk

    return walk.run(
        algo=args.algo,
        task=args.task,
        seeds=args.seeds,
        train_s=args.train_s,
        interval_s=args.interval_s,
        overrides=args.overrides,
    )


def _learn(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import learn

    return learn.run(suite=args.suite, seeds=args.seeds, algos=args.algos)


def _timeline(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import timeline

    return timeline.run(source=args.source)


def _train(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import train

    return train.run(
        algo=args.algo,
        task=args.task,
        blocks=args.blocks,
        block_s=args.block_s,
        overrides=args.overrides,
    )


def _timeline_cost(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import timeline_cost

    return timeline_cost.run(
        algo=args.algo,
        task=args.task,
        pairs=args.pairs,
        block_s=args.block_s,
        overrides=args.overrides,
    )


def _trace(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import trace

    return trace.run(
        algo=args.algo,
        task=args.task,
        blocks=args.blocks,
        block_s=args.block_s,
        overrides=args.overrides,
    )


def _watchers(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import watchers

    return watchers.run(
        algo=args.algo,
        task=args.task,
        kinds=args.kinds,
        apart=args.apart,
        blocks=args.blocks,
        block_s=args.block_s,
        overrides=args.overrides,
    )


def _sequence(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import sequence

    return sequence.run(transitions=args.transitions, envs=args.envs, records=args.records)


def _busy(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.bench import busy

    return busy.run(
        minutes=args.minutes,
        spinners=args.spinners,
        algo=args.algo,
        task=args.task,
        overrides=args.overrides,
    )


if __name__ == "__main__":
    sys.exit(main())
