"""Every command in the documentation is executed, at least as far as its configuration.

Commands that train resolve their whole configuration; those that only look are run; the rest are
parsed by their own parser. What `make` would run is checked like a command of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from doc_commands import expand, find_commands

from unilab_core.config.compose import compose
from unilab_core.launch.arguments import COMMANDS, command_parser, run_parser
from unilab_core.launch.run_command import RunOptions, build_config
from unilab_core.tools import eval_cli, extract_metrics
from unilab_core.tools.bench import cli as bench_cli
from unilab_core.tools.soak import cli as soak_cli
from unilab_monitor import __main__ as monitor

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = find_commands(ROOT)
CASES = [(written, line) for written in WRITTEN for line in expand(written.text)]
SETTING = "training.no_play=true"


@pytest.fixture
def words(tmp_path, monkeypatch):
    """What stands for the placeholders: a run that ended, an empty trace folder, a job's name."""
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(tmp_path / "registry"))
    run_dir = tmp_path / "run"
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "checkpoints" / "checkpoint_00000001.pt").touch()
    config = compose("sac", "go2_joystick_flat", overrides=["hardware.profile=cpu"])
    record = {"version": 1, "job": "j", "algo": "sac", "config": config.to_dict()}
    (run_dir / "run_config.json").write_text(json.dumps(record))
    for name in ("progress", "sample", "trajectory"):
        (tmp_path / "trace" / name).mkdir(parents=True)
    return {
        "RUN_DIR": str(run_dir),
        "TRACE_DIR": str(tmp_path / "trace"),
        "DIR": str(tmp_path / "out"),
        "JOB": "no-such-job",
        "NAME": "a-name",
        "KEY=VALUE": SETTING,
        "C": "1",
        "N": "20",
        "S": "60",
        "COMMAND": "unilab-launch --algo sac --task go2_joystick_flat",
        "...": "--algo sac --task go2_joystick_flat",
    }


def filled(line, words):
    """The command line with every placeholder replaced."""
    return shlex.split(" ".join(words.get(word, word) for word in line.split()))


def check(argv):
    """Execute one command as far as its configuration; raises where it would not be accepted."""
    tool, *arguments = argv
    if argv[:3] == ["uv", "run", "train"]:
        tool, arguments = "unilab-launch", argv[3:]
    if tool == "make":
        check_make(arguments)
    elif tool == "python":
        check_module(arguments)
    elif tool in ("unilab-launch", "train"):
        check_launch(arguments)
    else:
        PARSERS[tool](arguments)


def check_launch(arguments):
    if arguments[:1] and arguments[0] in COMMANDS:
        command_parser(arguments[0]).parse_args(arguments[1:])
        # Other people's leftovers are none of this test's business: gc only reports here.
        safe = ["--dry-run"] if arguments == ["gc"] or arguments == ["gc", "--json"] else []
        done = run_module("unilab_core.launch", *arguments, *safe)
        assert done.returncode in (0, 6), done.stderr  # 6: the named job does not exist
        return
    args = run_parser().parse_intermixed_args(arguments)
    if args.algo is None and args.resume is None:
        return  # flags in a list of alternatives, parsed by the launcher's own parser
    build_config(
        RunOptions(
            algo=args.algo, task=args.task, sim=args.sim, overrides=tuple(args.overrides),
            job=args.job, resume=args.resume,
        ),
        {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip


def check_monitor(arguments):
    args = monitor.parser().parse_args(arguments)
    if args.once or args.json:
        done = run_module("unilab_monitor", *arguments)
        assert done.returncode in (0, 6), done.stderr


def check_bench(arguments):
    args = bench_cli._parser().parse_args(arguments)
    if args.bench == "walk":
        compose(args.algo, args.task, overrides=args.overrides)


def check_soak(arguments):
    args = soak_cli.parser().parse_args(arguments)
    assert args.command[:1] == ["--"], arguments
    check(args.command[1:])


PARSERS = {
    "unilab-monitor": check_monitor,
    "unilab-eval": lambda arguments: eval_cli._parser().parse_args(arguments),
    "unilab-bench": check_bench,
    "unilab-extract-metrics": lambda arguments: extract_metrics.parser().parse_args(arguments),
    "unilab-soak": check_soak,
}


def check_make(arguments):
    """make resolves the target; the commands of ours that it would run are checked in turn."""
    # `make test ARGS=...` hands its own variables down to every make below it.
    outside = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS")
    environ = {name: value for name, value in os.environ.items() if name not in outside}
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *arguments], cwd=ROOT, capture_output=True,
        text=True, timeout=60, env=environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        command = line.strip().removeprefix(".venv/bin/")
        if command.startswith("unilab-"):
            check(shlex.split(command))
        elif command.startswith("python -m unilab"):
            check_module(shlex.split(command)[1:])


def check_module(arguments):
    """python -m: the module is there, and its help names every flag of the command."""
    assert arguments[0] == "-m"
    assert importlib.util.find_spec(arguments[1]) is not None, arguments[1]
    done = run_module(arguments[1], "--help")
    assert done.returncode == 0, done.stderr
    for word in arguments[2:]:
        assert not word.startswith("--") or word.split("=")[0] in done.stdout, word


def run_module(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_synopsis_stands_for_every_alternative_in_it():
    assert set(expand("t {a,b} [--x C] [--y {1,2}] [J | R]")) == {
        "t a", "t b", "t a J", "t b J", "t a R", "t b R", "t a --y 1", "t a --y 2", "t b --y 1",
        "t b --y 2", "t a --x C", "t b --x C",
    }  # fmt: skip
    assert set(expand("t list | stop J | gc [--json]")) == {
        "t list", "t stop J", "t gc", "t gc --json",
    }  # fmt: skip
    assert expand("t ... --job N --a | --b") == ["t ... --job N --a", "t ... --job N --b"]


def test_the_documents_were_read():
    tools = {written.text.split()[0] for written in WRITTEN}
    assert tools >= {"unilab-launch", "unilab-monitor", "unilab-eval", "unilab-bench", "make"}
    assert tools >= {"unilab-extract-metrics", "unilab-soak"}


@pytest.mark.parametrize(("written", "line"), CASES, ids=[f"{w.path}: {line}" for w, line in CASES])
def test_a_command_of_the_documentation_is_accepted(written, line, words):
    try:
        check(filled(line, words))
    except SystemExit as error:
        pytest.fail(f"{written.path}: {line!r} is refused with exit code {error.code}")


def test_a_wrong_command_would_be_found(words):
    for bad in (
        "unilab-launch --algo sac --task go2_joystick_flt",
        "unilab-launch --algo sac --task go2_joystick_flat algo.num_env=3",
        "unilab-monitor JOB --onec",
        "unilab-eval RUN_DIR --checkpont C",
        "unilab-bench colector",
        "unilab-soak --out DIR -- unilab-launch --algo sca --task go2_joystick_flat",
        "unilab-frobnicate",
        "make tarin",
        "python -m unilab_core.telemetry.render_doc",
    ):
        with pytest.raises((SystemExit, ValueError, KeyError, AssertionError, ImportError)):
            check(filled(bad, words))


def test_every_entry_point_is_there():
    lines = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]")[2]
    entries = [line for line in lines.partition("\n[")[0].splitlines() if "=" in line]
    assert len(entries) >= 7
    for entry in entries:
        module, _, function = entry.partition("=")[2].strip(' "').partition(":")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("algo", "task"),
    sorted(
        {
            (words[words.index("--algo") + 1], words[words.index("--task") + 1])
            for _, line in CASES
            if line.startswith("unilab-launch --algo")
            for words in [line.split()]
        }
    ),
)
def test_a_documented_training_run_can_be_planned(algo, task, tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
               "UNILAB_RUNTIME_DIR": str(tmp_path / "registry")}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "unilab_core.launch", "--algo", algo, "--task", task, "--dry-run"],
        cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"x {task} (" in done.stdout
    assert list(tmp_path.iterdir()) == []
