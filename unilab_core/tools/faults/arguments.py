"""The arguments of `unilab-bench faults`, `nemesis` and `cycles`; imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from unilab_core.tools.bench.report import BenchReport

ALGOS = ("sac", "appo", "ppo")

Add = Callable[..., argparse.ArgumentParser]


def add_parsers(names: argparse._SubParsersAction, add: Add) -> None:
    """Add the three commands."""
    faults = add(names, "faults", _faults, "every fault in every phase, and what is left of it")
    faults.add_argument("--quick", action="store_true", help="a few cases that cover most rows")
    faults.add_argument("--algos", nargs="+", default=list(ALGOS), choices=ALGOS, metavar="ALGO")
    faults.add_argument("--seed", type=int, default=0, help="of the order and the passages")
    faults.add_argument("--jobs", type=int, default=2, help="cases at a time")
    faults.add_argument("--part", type=_part, default=(1, 1), metavar="K/N", help="a K-th of N")
    faults.add_argument(
        "--merge", type=Path, nargs="+", metavar="JSON", help="run nothing: results of parts in one"
    )
    faults.add_argument("--only", default="", help="cases whose name holds this text")
    faults.add_argument("--out", type=Path, metavar="JSON", help="every point, machine-readable")
    faults.add_argument("--table", type=Path, metavar="MD", help="the table in Markdown")

    nemesis = add(names, "nemesis", _nemesis, "random kills and stops, each followed by a start")
    nemesis.add_argument("--rounds", type=int, default=200)
    nemesis.add_argument("--seed", type=int, default=0)
    nemesis.add_argument("--algos", nargs="+", default=list(ALGOS), choices=ALGOS, metavar="ALGO")
    nemesis.add_argument("--jobs", type=int, default=2, help="rounds at a time")
    nemesis.add_argument("--out", type=Path, metavar="JSON", help="every round, machine-readable")

    cycles = add(names, "cycles", _cycles, "many runs in one launcher process: does anything grow")
    cycles.add_argument("--rounds", type=int, default=1000)
    cycles.add_argument("--limit-min", type=float, default=30.0, help="end after so many minutes")
    cycles.add_argument("--algo", default="sac", choices=ALGOS)
    cycles.add_argument("--out", type=Path, metavar="JSON", help="every sample, machine-readable")


def _faults(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.faults import sweep

    if args.merge:
        return sweep.merge(args.merge, out=args.out, table=args.table)
    return sweep.run(
        algos=args.algos,
        is_quick=args.quick,
        seed=args.seed,
        jobs=args.jobs,
        part=args.part,
        only=args.only,
        out=args.out,
        table=args.table,
    )


def _part(text: str) -> tuple[int, int]:
    """`3/10` as (3, 10)."""
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit() and 1 <= int(first) <= int(second)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected K/N with 1 <= K <= N")
    return int(first), int(second)


def _nemesis(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.faults import nemesis

    return nemesis.run(
        rounds=args.rounds, seed=args.seed, algos=args.algos, jobs=args.jobs, out=args.out
    )


def _cycles(args: argparse.Namespace) -> BenchReport:
    from unilab_core.tools.faults import cycles

    return cycles.run(
        rounds=args.rounds, limit_s=args.limit_min * 60.0, algo=args.algo, out=args.out
    )
