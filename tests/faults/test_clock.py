"""F30: the wall clock may jump; it labels, and decides nothing."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("unilab_ipc", "unilab_core", "unilab_collector", "unilab_learner", "unilab_monitor")
LABELS = {
    "unilab_collector/nan_dumps.py": "time_utc of a dump",
    "unilab_core/launch/console.py": "the stamp of a log line",
    "unilab_core/launch/ending.py": "started and ended, for people",
    "unilab_core/run/child.py": "time_utc of error.json",
    "unilab_core/run/run_dir.py": "the name of the directory",
    "unilab_core/telemetry/event_file.py": "what TensorBoard shows",
    "unilab_core/telemetry/training_logger.py": "what TensorBoard shows",
    "unilab_ipc/registry.py": "started_utc",
}
WALL = {"time.time", "time.time_ns", "time.strftime", "time.localtime", "datetime.now"}
# Traces carry wall-clock times by their format; their readers compare recorded times only.
FORMATS = (
    "unilab_collector/segment_trace.py",
    "unilab_core/telemetry/rl_trace/",
    "unilab_core/telemetry/timeline/",
    "unilab_core/tools/",
    "unilab_learner/step_trace.py",
    "unilab_monitor/pages/",
)


def test_f30_nothing_that_decides_reads_the_wall_clock():
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(FORMATS) or name in LABELS:
                continue
            calls = [
                ast.unparse(node.func)
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call)
            ]
            wrong = [call for call in calls if call in WALL or call.endswith("datetime.now")]
            if wrong:
                found[name] = wrong
    assert found == {}


def test_f30_every_label_is_still_one():
    for name in LABELS:
        assert any(word in (ROOT / name).read_text() for word in ("time.time", "strftime", "now("))
