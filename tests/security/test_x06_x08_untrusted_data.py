"""X06 no pickle between run and monitor, X08 metric frames of any content."""

import ast
import random
import shutil
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_job import collector, iteration, run_info

from unilab_core.config.compose import compose, conf_dir
from unilab_core.config.errors import ConfigError
from unilab_core.telemetry.records import RecordError, parse_record
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.segments import METRIC_QUEUE
from unilab_monitor.model import Batch, Model
from unilab_monitor.view import JobFacts

ROOT = Path(__file__).parents[2]
PACKAGES = ("unilab_ipc", "unilab_core", "unilab_collector", "unilab_learner", "unilab_monitor")


def one_line(error):
    return str(error).strip() != "" and len(str(error).strip().splitlines()) == 1


def sources():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_x06_no_module_shares_python_objects_between_processes():
    banned = {"multiprocessing", "shelve", "dill", "cloudpickle", "joblib"}
    wrong = []
    for path, tree in sources():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            wrong += [f"{path}: {name}" for name in names if name.split(".")[0] in banned]
    assert wrong == []


def test_x06_yaml_is_read_by_the_safe_loader_only():
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "yaml"
        and node.attr not in {"safe_load", "CSafeLoader", "SafeLoader", "YAMLError"}
    ]
    assert wrong == []


def test_x06_a_monitor_shows_a_run_without_ever_unpickling(tmp_path):
    (tmp_path / "run_config.json").write_text("{}")
    code = (
        "import pickle, sys\n"
        "def refuse(*a, **k): raise SystemExit('the monitor unpickled something')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = refuse\n"
        "from unilab_monitor.__main__ import main\n"
        "main([sys.argv[1], '--once', '--json'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "evil: !!python/object/apply:os.system ['touch {marker}']",
        "evil: !!python/object/new:subprocess.Popen [['touch', '{marker}']]",
        "evil: !!python/name:os.system",
        "evil: &a [*a, *a, *a]",
    ],
)
def test_x06_a_configuration_file_executes_nothing(tmp_path, line):
    marker = tmp_path / "executed"
    conf = tmp_path / "conf"
    conf.mkdir()
    for entry in conf_dir().iterdir():
        (conf / entry.name).symlink_to(entry)
    (conf / "sac").unlink()
    shutil.copytree(conf_dir() / "sac", conf / "sac")
    file = conf / "sac" / "config.yaml"
    file.write_text(file.read_text() + "\n" + line.format(marker=marker) + "\n")
    with pytest.raises(ConfigError):
        compose("sac", "go2_joystick_flat", conf=conf, environ={})
    assert not marker.exists()


def test_x06_a_stored_configuration_does_not_read_the_environment(monkeypatch):
    monkeypatch.setenv("SECRET_CANARY", "do-not-leak")
    base = compose("sac", "go2_joystick_flat", environ={"CUDA_VISIBLE_DEVICES": ""}).to_dict()
    base["training"]["wandb_notes"] = "${oc.env:SECRET_CANARY}"
    with pytest.raises(ConfigError, match=r"training.wandb_notes: .*plain value"):
        compose("sac", "go2_joystick_flat", base=base, environ={})


# ---- overrides


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_an_override_of_any_text_is_a_config_or_one_line(text):
    from unilab_core.config.overrides import parse_overrides

    try:
        parse_overrides([text])
    except ConfigError as error:
        assert one_line(error)  # noqa: PT017 - either outcome is fine


KEYS = [
    "algo.num_envs",
    "algo.gamma",
    "training.log_root",
    "env",
    "env.rewards",
    "algo",
    "a.b",
    "algo.seed",
]
VALUES = ["1", "-1", "nan", "1e309", "[]", "{}", "null", "'x'", "[1,[2,{a:1}]]", "${oc.env:HOME}",
          "true", "99999999999999999999", "''", "\\t"]  # fmt: skip


def test_overrides_of_any_kind_are_a_configuration_or_one_line():
    rng = random.Random(11)
    outcomes = set()
    for number in range(25):
        chosen = (
            ["algo.seed=7"]
            if number == 0
            else [
                f"{rng.choice(['', '+', '~'])}{rng.choice(KEYS)}={rng.choice(VALUES)}"
                for _ in range(rng.randrange(1, 3))
            ]
        )
        try:
            compose(
                "sac", "go2_joystick_flat", overrides=chosen, environ={"CUDA_VISIBLE_DEVICES": ""}
            )
            outcomes.add("accepted")
        except ValueError as error:
            assert one_line(error), chosen  # noqa: PT017 - either outcome is fine
            outcomes.add("refused")
    assert outcomes == {"accepted", "refused"}


# ---- X08


def framed(raw):
    """A ring with one frame of exactly these bytes, well-formed otherwise."""
    segment = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    reader = RingReader(segment)
    for _ in RingWriter(segment)._write_steps(raw):
        pass
    return reader


@pytest.mark.parametrize(
    "raw",
    [
        msgpack.packb({"x": list(range(70_000))})[:16_000],
        b"\xdd\xff\xff\xff\xff" + b"\x00" * 20,
        b"\x81\xa1x\xdf\x7f\xff\xff\xff",
        b"\x81\xa1x\xc6\xff\xff\xff\xff",
        b"\x81\xa1x" + b"\x91" * 10_000 + b"\xc0",
        msgpack.packb({"x": msgpack.ExtType(1, b"")}),
        msgpack.packb({"x": msgpack.Timestamp(0, 0)}),
        msgpack.packb({f"k{i}": 1 for i in range(5_000)})[:16_000],
    ],
)
def test_x08_sizes_and_types_beyond_the_limits_are_counted_and_skipped(raw):
    reader = framed(raw)
    assert reader.read() == []
    assert reader.invalid_count == 1


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
GOOD = [collector(1, 1).record(), iteration(1, 1).record(), run_info().record(1)]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(GOOD),
    st.dictionaries(st.text() | st.sampled_from(list(GOOD[0])), TREES, max_size=3),
)
def test_x08_a_record_of_any_shape_is_parsed_or_refused_and_never_breaks_a_monitor(good, changes):
    record = {**good, **changes}
    (read,) = framed(msgpack.packb(record)).read()
    try:
        parse_record(read)
    except RecordError as error:
        assert one_line(error)  # noqa: PT017 - either outcome is fine
    model = Model()
    batch = Batch(now_ns=10, facts=JobFacts(job="j"), learner=[read, *GOOD], collector=[read])
    assert model.fold(batch).facts.task == run_info().task


def test_x08_20_000_frames_with_flipped_bytes_raise_nothing_and_grow_nothing():
    rng = random.Random(5)
    raw = msgpack.packb(GOOD[0])
    segment = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    writer, reader = RingWriter(segment), RingReader(segment)
    model = Model()
    survivors = 0
    for _ in range(20_000):
        damaged = bytearray(raw)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        for _ in writer._write_steps(bytes(damaged)):
            pass
        records = reader.read()
        survivors += len(records)
        if survivors % 20 == 0:
            model.fold(Batch(now_ns=10, facts=JobFacts(job="j"), collector=records))
    assert survivors + reader.invalid_count == 20_000
    assert survivors > 1000
    assert reader.invalid_count > 1000
