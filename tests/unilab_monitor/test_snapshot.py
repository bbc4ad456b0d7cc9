import json

import pytest
from synthetic_job import SECOND, collector, fold, iteration, run_info

from unilab_monitor.snapshot import snapshot
from unilab_monitor.view import EndView, ProcessView

T = 100 * SECOND

# The contract: fields may be added, never renamed.
PROMISED = {
    "job": str,
    "state": str,
    "reason": None,
    "algo": str,
    "task": str,
    "sim": str,
    "run_dir": str,
    "iteration": int,
    "max_iterations": int,
    "elapsed_s": float,
    "eta_s": float,
    "window": {"seconds": float, "samples": int},
    "rates": {"steps_per_s": float, "rows_per_s": float},
    "learner": {"age_s": float, "values": {}, "other_ms": float},
    "collector": {"age_s": float, "values": {}, "cycle_ms": float, "wall_ms": float},
    "system": {
        "buffer": int,
        "timeout_rate": float,
        "envs": int,
        "batch_per_rank": int,
        "cuda_mps": str,
        "ranks": int,
    },
    "metrics": {},
    "rewards": {"mean": float, "peak": float, "terms": {}},
    "lapped": int,
}


def check(promised, found):
    for name, kind in promised.items():
        assert name in found
        if isinstance(kind, dict):
            check(kind, found[name])
        elif kind is not None:
            assert type(found[name]) is kind, name
        else:
            assert found[name] is None


def view_of(**batch):
    process = ProcessView(
        role="learner", rank=0, pid=3, phase="training/learner_update", awaits=None, age_s=0.1
    )
    learner = [
        run_info(trainable_ns=T - 61 * SECOND),
        iteration(T, 412, **batch.pop("iteration", {})),
    ]
    return fold(
        learner=learner,
        collector=[collector(T, 412)],
        processes=(process,),
        now_ns=T + SECOND // 10,
        **batch,
    )


def test_every_promised_field_is_there_with_its_type():
    record = json.loads(json.dumps(snapshot(view_of()), allow_nan=False))
    check(PROMISED, record)
    assert record["state"] == "running"
    assert record["window"] == {"seconds": 2.0, "samples": 1}
    assert record["learner"]["age_s"] == 0.1
    assert record["processes"][0]["role"] == "learner"
    assert {"role", "rank", "pid", "phase", "awaits", "age_s"} <= record["processes"][0].keys()
    assert record["diagnosis"][0].keys() == {"finding", "check"}


def test_values_use_canonical_tags_and_their_units():
    record = snapshot(view_of())
    assert record["learner"]["values"]["Perf/learning_time"] == 0.018
    assert record["learner"]["values"]["Perf/iteration_time"] == pytest.approx(0.0204)
    assert record["learner"]["values"]["Perf/learner_collector_wait_ms"] == 0.1
    assert record["collector"]["values"]["Perf/collector_env_step_ms"] == 3.5
    assert "wall_ms" not in record["collector"]["values"]
    assert record["collector"]["cycle_ms"] == pytest.approx(20.0)
    assert record["rewards"]["terms"]["tracking_lin_vel"] == 0.612


def test_unknown_figures_are_null_and_never_zero():
    record = snapshot(fold(attached=False, now_ns=T))
    assert record["state"] == "starting"
    for name in ("iteration", "max_iterations", "elapsed_s", "eta_s", "algo", "run_dir"):
        assert record[name] is None
    assert record["rates"] == {"steps_per_s": None, "rows_per_s": None}
    assert record["learner"]["age_s"] is None
    assert record["system"]["buffer"] is None
    assert record["rewards"]["mean"] is None


def test_nan_becomes_null():
    record = snapshot(view_of(iteration={"metrics": {"Loss/critic": float("inf")}}))
    assert record["metrics"] == {"Loss/critic": None}
    json.dumps(record, allow_nan=False)


def test_an_ended_job_says_so_with_its_reason():
    record = snapshot(view_of(end=EndView(reason="completed", exit_code=0)))
    assert (record["state"], record["reason"]) == ("ended", "completed")
