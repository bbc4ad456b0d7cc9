"""unilab-soak on real processes: foreign commands here, a training run of ours in tests/e2e."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from soak_rig import GOOD_SUMMARY, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

PATIENCE_S = 60.0
FAST = ("--sample-interval-s", "0.2", "--post-shutdown-grace-s", "0.5")


class Soak:
    """Soaks with their own output folder and registry."""

    def __init__(self, folder):
        self.folder = folder
        self.out = folder / "out"
        self.started = []

    def start(self, code, *options):
        """Soak a python program; `OUT` in it is the output folder."""
        program = f"OUT = {str(self.out)!r}\n{code}"
        environ = {
            **os.environ, "UNILAB_RUNTIME_DIR": str(self.folder / "registry"),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = [sys.executable, "-m", "unilab_core.tools.soak.cli", "--out", str(self.out)]
        process = subprocess.Popen(
            [*command, *FAST, *options, "--json", "--", sys.executable, "-c", program],
            env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=PATIENCE_S)
        assert not err, err
        return process.returncode, self.artifact(), json.loads(out.splitlines()[-1])

    def artifact(self):
        return json.loads((self.out / "soak.json").read_text())

    def until(self, look):
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if found := look():
                return found
            time.sleep(0.05)
        raise AssertionError("never happened")


@pytest.fixture
def soak(tmp_path):
    soak = Soak(tmp_path)
    yield soak
    for process in soak.started:
        if process.poll() is None:
            process.kill()
            process.communicate()


GROW = f"""
import json, sys, time
def grow(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        open(OUT + "/log.txt", "a").write("x" * 100)
        time.sleep(0.05)
def summary():
    json.dump({GOOD_SUMMARY!r}, open(OUT + "/run_summary.json", "w"))
"""


def test_a_command_that_keeps_the_contract_passes(soak):
    code, artifact, said = soak.finish(
        soak.start(GROW + "grow(1.5); summary(); print('bye')", "--context", "host=a")
    )
    assert code == 0
    assert said["passed"] is True
    assert (artifact["status"], artifact["failure_reason"]) == ("passed", None)
    assert artifact["context"] == {"host": "a"}
    assert artifact["run_summary"]["status"] == "completed"
    assert artifact["shutdown"]["classification"] == "normal_completion"
    assert artifact["monitor"]["sample_count"] >= 3
    running = artifact["samples"][1]["process"]
    assert running["process_count"] == 1
    assert running["processes"][0]["rss_kib"] > 1000
    assert running["fd_count_total"] == sum(running["fd_classes_total"].values()) >= 3
    assert running["thread_count_total"] == 1
    assert artifact["samples"][-1]["progress"]["bytes_total"] > 0
    console = (soak.out / "soak-console.log").read_text()
    assert console == "bye\n"


def test_a_run_that_is_too_short_or_leaves_no_summary_fails(soak):
    code, artifact, _ = soak.finish(soak.start(GROW + "grow(0.3)", "--min-duration-s", "30"))
    assert code == 1
    assert artifact["failure_reason"].startswith("ran ")
    assert artifact["failure_reason"].endswith("; no run_summary.json")
    assert artifact["failure_classification"] == "unknown_failure"


def test_an_old_summary_is_not_taken_for_this_runs(soak):
    soak.out.mkdir()
    path = soak.out / "run_summary.json"
    path.write_text(json.dumps(GOOD_SUMMARY))
    os.utime(path, (1, 1))
    code, artifact, _ = soak.finish(soak.start(GROW + "grow(0.3)"))
    assert code == 1
    assert artifact["failure_classification"] == "missing_run_summary"


def test_a_damaged_summary_is_invalid(soak):
    program = GROW + "grow(0.3); open(OUT + '/run_summary.json', 'w').write('{')"
    code, artifact, _ = soak.finish(soak.start(program))
    assert code == 1
    assert artifact["failure_classification"] == "invalid_run_summary"


def test_an_orphan_in_a_session_of_its_own_is_a_leak_and_is_ended(soak):
    program = GROW + (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'],"
        " start_new_session=True)\n"
        "grow(0.5); summary()"
    )
    code, artifact, _ = soak.finish(soak.start(program))
    assert code == 1
    assert artifact["failure_classification"] == "resource_leak"
    (left,) = artifact["post_shutdown"]["residual_processes"]
    assert "time.sleep(1000)" in left["command"]
    assert artifact["resource_summary"]["residual_process_count"] == 1
    assert not os.path.exists(f"/proc/{left['pid']}")


def test_a_command_without_any_sign_of_life_is_ended(soak):
    process = soak.start("import time; time.sleep(1000)", "--startup-timeout-s", "1")
    code, artifact, _ = soak.finish(process)
    assert code == 1
    assert artifact["failure_classification"] == "timeout/startup"
    assert artifact["returncode"] == -signal.SIGTERM
    assert artifact["failure_reason"].startswith("no sign of progress within 1 s; return code -15")


def test_a_command_that_stands_still_and_is_deaf_is_killed(soak):
    program = GROW + (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); grow(0.6); time.sleep(1000)"
    )
    code, artifact, _ = soak.finish(soak.start(program, "--stale-progress-s", "1"))
    assert code == 1
    assert artifact["failure_classification"] == "timeout/stale_tick"
    assert artifact["returncode"] == -signal.SIGKILL


def test_the_producers_own_classification_wins(soak):
    program = GROW + (
        "grow(0.3); summary(); path = OUT + '/run_summary.json'; s = json.load(open(path))\n"
        "s['runtime_manifest']['shutdown']['classification'] = 'learner_failure'\n"
        "json.dump(s, open(path, 'w')); sys.exit(10)"
    )
    code, artifact, _ = soak.finish(soak.start(program))
    assert code == 1
    assert artifact["returncode"] == 10
    assert artifact["failure_reason"] == "return code 10"
    assert artifact["failure_classification"] == "learner_failure"


@pytest.mark.parametrize(("signum", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_soak_ends_its_command_and_says_so(soak, signum, expected):
    process = soak.start(GROW + "grow(1000)")
    soak.until(lambda: (soak.out / "soak.json").exists() and len(soak.artifact()["samples"]) > 2)
    pid = soak.artifact()["samples"][-1]["process"]["processes"][0]["pid"]
    process.send_signal(signum)
    code, artifact, _ = soak.finish(process)
    assert code == expected
    assert artifact["failure_classification"] == "external_cancellation"
    assert not os.path.exists(f"/proc/{pid}")


def test_a_soak_that_is_killed_leaves_a_readable_artifact(soak):
    process = soak.start(GROW + "grow(3)")
    soak.until(lambda: (soak.out / "soak.json").exists() and len(soak.artifact()["samples"]) > 2)
    process.kill()
    process.communicate()
    artifact = soak.artifact()
    assert artifact["status"] == "failed"
    assert artifact["failure_classification"] == "monitor_failure"
    assert len(artifact["samples"]) > 2


def test_the_gpus_memory_is_that_of_the_commands_own_processes(soak, tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    # The foreign process 1 must not be counted; every other pid of the machine is.
    tool.write_text(
        "#!/bin/sh\necho '1, 999'\nfor p in /proc/[0-9]*; do echo \"${p#/proc/}, 100\"; done\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    code, artifact, _ = soak.finish(soak.start(GROW + "grow(1.0); summary()"))
    assert code == 0
    assert artifact["resource_summary"]["max_gpu_used_memory_mib"] == 100
    assert artifact["samples"][1]["gpu"]["process_count"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "{out}"], "no command"),
        (["--out", "{out}", "--context", "x", "--", "true"], "expected KEY=VALUE"),
        (["--out", "{out}", "--sample-interval-s", "0", "--", "true"], "sample_interval_s"),
        (["--out", "{out}", "--progress-dir", "/nonexistent", "--", "true"], "/nonexistent"),
        (["--out", "{out}", "--", "/nonexistent/command"], "/nonexistent/command"),
        (["--out", "{used}", "--", "true"], "exists; give another --out"),
    ],
)
def test_bad_input_is_one_line(tmp_path, options, words):
    used = tmp_path / "used"
    used.mkdir()
    (used / "soak.json").write_text("{}")
    options = [text.format(out=tmp_path / "out", used=used) for text in options]
    done = subprocess.run(
        [sys.executable, "-m", "unilab_core.tools.soak.cli", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
