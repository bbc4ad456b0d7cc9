"""A summary that passes every rule."""

from pathlib import Path

ROOT = Path(__file__).parents[4]


def good_summary():
    return {
        "algo": "sac",
        "status": "completed",
        "metric_schema_version": 1,
        "total_env_steps": 1280,
        "runtime_manifest": {
            "schema_version": 1,
            "inference_ring_capacity": 1,
            "collector_metrics_interval": 1,
            "collector_backend_device": None,
            "inference_flight": {
                "queue_depth": 0, "publication_lag": 0, "max_in_flight": 1,
                "max_publication_lag": 1,
            },
            "replay_ingress": {
                "ingress_depth": 2, "ingress_slot_rows": 16, "published_sequence": 80,
                "release_sequence": 80, "occupancy": 0, "high_water_occupancy": 1,
                "backpressure_waits": 3, "backpressure_wait_s": 0.25, "early_returns": 0,
                "dropped_batches": 0, "closed_returns": 0, "stop_returns": 0,
            },
            "shutdown": {
                "classification": "normal_completion", "owner": "learner", "phase": "ended",
                "exception": None, "cleanup": {"errors": []},
            },
        },
    }  # fmt: skip


GOOD_SUMMARY = good_summary()
