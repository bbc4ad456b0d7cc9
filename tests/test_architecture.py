"""The import table of the design, checked on syntax trees, and what start-up must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("unilab_ipc", "unilab_core", "unilab_collector", "unilab_learner", "unilab_monitor")
HEAVY = ("torch", "mujoco", "warp", "textual", "gymnasium", "rsl_rl")

# Longest prefix wins: what a module may import of ours, and which heavy third parties.
OURS = {
    "unilab_ipc": {"unilab_ipc"},
    "unilab_core": {"unilab_ipc", "unilab_core"},
    "unilab_collector": {"unilab_ipc", "unilab_core", "unilab_collector"},
    "unilab_learner": {"unilab_ipc", "unilab_core", "unilab_learner"},
    "unilab_monitor": {"unilab_ipc", "unilab_core", "unilab_monitor"},
}
HEAVY_ALLOWED = {
    "unilab_ipc": set(),
    "unilab_core.config": set(),
    "unilab_core.run": set(),
    "unilab_core.telemetry": set(),
    "unilab_core.launch": set(),
    "unilab_core.contracts": set(),
    "unilab_core.envs": {"mujoco", "warp", "gymnasium"},
    "unilab_core.backends": {"mujoco", "warp"},
    "unilab_core.robots": {"mujoco"},
    "unilab_core.tasks": {"mujoco"},
    "unilab_core.nets": {"torch"},
    "unilab_core.tools": {"torch", "mujoco", "gymnasium"},
    "unilab_collector": {"mujoco", "warp", "torch"},
    "unilab_learner": {"torch", "rsl_rl"},
    "unilab_monitor": {"textual"},
}
NOT_FOR_LEARNER = ("unilab_core.envs", "unilab_core.backends", "unilab_core.tasks")
NOT_FOR_MONITOR = (*NOT_FOR_LEARNER, "unilab_core.nets", "unilab_core.tools")
NOT_FOR_LAUNCHER = (*NOT_FOR_MONITOR, "unilab_core.robots")


def modules() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append((name.removesuffix(".__init__"), path))
    return found


def imports_of(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def rule_for(module: str, table: dict[str, set[str]]) -> set[str]:
    prefix = max((p for p in table if module == p or module.startswith(p + ".")), key=len)
    return table[prefix]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_downwards(package):
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        if module.split(".")[0] == package
        for name in imports_of(path)
        if name.split(".")[0] in PACKAGES and name.split(".")[0] not in OURS[package]
    ]
    assert wrong == []


def test_heavy_libraries_stay_in_their_packages():
    wrong = []
    for module, path in modules():
        if module in PACKAGES:
            continue
        allowed = rule_for(module, HEAVY_ALLOWED)
        wrong += [
            f"{module} imports {name}"
            for name in imports_of(path)
            if name.split(".")[0] in HEAVY and name.split(".")[0] not in allowed
        ]
    assert wrong == []


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("unilab_learner", NOT_FOR_LEARNER),
        ("unilab_monitor", NOT_FOR_MONITOR),
        ("unilab_core.launch", NOT_FOR_LAUNCHER),
        ("unilab_core.config", NOT_FOR_LAUNCHER),
        ("unilab_core.run", NOT_FOR_LAUNCHER),
    ],
)
def test_processes_do_not_import_what_others_own(package, forbidden):
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        if module == package or module.startswith(package + ".")
        for name in imports_of(path)
        if any(name == f or name.startswith(f + ".") for f in forbidden)
    ]
    assert wrong == []


def test_only_peers_signals_processes_by_number():
    """A pid from a file may belong to somebody else by now: signals go through an open pidfd."""
    wrong = []
    for module, path in modules():
        if module == "unilab_ipc.peers":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
                and node.attr in {"kill", "killpg"}
            ):
                wrong.append(f"{module}:{node.lineno}")
    assert wrong == []


def test_nothing_unpickles():
    """Files may come from anywhere: no pickle, and torch.load with weights only."""
    wrong = []
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            called = f"{owner.id}.{node.func.attr}" if isinstance(owner, ast.Name) else ""
            safe = any(
                word.arg == "weights_only"
                and isinstance(word.value, ast.Constant)
                and word.value.value is True
                for word in node.keywords
            )
            unsafe = {"pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads"}
            if called in unsafe or (called == "torch.load" and not safe):
                wrong.append(f"{module}:{node.lineno} {called}")
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "import unilab_monitor.__main__",
        "import sys; sys.argv = ['unilab-launch', '--help']\n"
        "import unilab_core.launch.cli as c\n"
        "try:\n    c.main()\nexcept SystemExit:\n    pass",
    ],
    ids=["monitor", "launch-help"],
)
def test_start_up_loads_no_heavy_library(code):
    check = (
        "import sys as s; print('BAD' if {'torch', 'mujoco', 'warp'} & set(s.modules) else 'ok')"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{check}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "BAD" not in done.stdout
