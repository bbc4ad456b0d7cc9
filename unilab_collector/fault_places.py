"""Where the collector can be struck by `UNILAB_FAULT`; see `unilab_core.run.fault_point`."""

from __future__ import annotations

from typing import Any

import numpy as np

from unilab_core.run.fault_point import Place, Sight, entering
from unilab_core.run.faults import Fault

_CHILD = "unilab_core.run.child"
_PRODUCER = "unilab_ipc.slot_ring:SlotProducer"
_PORT = "unilab_ipc.inference_slot:CollectorPort"


def places(fault: Fault, algo: str, task: str) -> tuple[Place | Sight, ...]:
    """The places of one fault of the collector.

    Args:
        fault: what is asked for.
        algo: algorithm of the job.
        task: task of the job; decides the class of the environment.
    """
    table = _nan_places(task) if fault.action == "nan" else _places(task)
    return table.get((fault.phase, algo)) or table[fault.phase, "any"]


def _places(task: str) -> dict[tuple[str, str], tuple[Place | Sight, ...]]:
    """By phase and algorithm; `any` is every other algorithm that gets there."""
    committed = (Place(owner=_PRODUCER, method="_commit_steps", moment="slot written"),)
    return {
        ("P0", "any"): (entering("startup/wait_job"),),
        ("P1", "any"): (Place(owner=_CHILD, method="_open_context"),),
        ("P2", "any"): (entering("startup/attach"),),
        ("P3", "any"): (Place(owner=_env(task), method="reset"),),
        ("P4a", "any"): (Place(owner=_env(task), method="step"),),
        ("P4b", "any"): (Place(owner=_PORT, method="publish", moment="after"),),
        ("P4b", "appo"): (
            Place(owner="unilab_collector.acting_policy:ActingPolicy", method="act"),
        ),
        ("P4c", "ppo"): (
            Place(owner="unilab_collector.step_feed:StepFeed", method="write", moment="after"),
        ),
        ("P4c", "appo"): committed,
        ("P4d", "appo"): (
            Place(
                owner="unilab_ipc.policy_snapshot:SnapshotReader",
                method="_fetch_steps",
                moment="half a copy",
            ),
        ),
        ("P4e", "any"): committed,
        ("P4f", "any"): (
            Place(
                owner="unilab_ipc.metric_queue:RingWriter",
                method="_write_steps",
                moment="head stored",
            ),
        ),
        ("P5", "any"): (_sight("training/checkpoint", "finalize/checkpoint"),),
        ("P6", "any"): (entering("finalize/env_close"),),
        ("P7", "any"): (_sight("startup/resume_load"),),
    }


def _nan_places(task: str) -> dict[tuple[str, str], tuple[Place | Sight, ...]]:
    env = _env(task)
    return {
        ("P3", "any"): (Place(owner=env, method="reset", moment="after", spoil=_spoil_obs),),
        ("P4a", "any"): (Place(owner=env, method="step", moment="after", spoil=_spoil_reward),),
        ("P4b", "any"): (Place(owner=_PORT, method="publish", spoil=_spoil_port),),
        # Behind the collector's own checks: the learner's have to notice these two.
        ("P4c", "appo"): (Place(owner=_PRODUCER, method="commit", spoil=_spoil_claim),),
        ("P4e", "any"): (Place(owner=_PRODUCER, method="commit", spoil=_spoil_claim),),
    }


def _env(task: str) -> str:
    if task.startswith("gym:"):
        return "unilab_core.envs.gym_env:GymEnv"
    return "unilab_core.envs.manager_based:ManagerBasedEnv"


def _sight(*phases: str) -> Sight:
    return Sight(
        opens=Place(owner=_CHILD, method="_open_context", moment="after"),
        board=lambda _args, result: result[0].board,
        role="learner",
        phases=frozenset(phases),
    )


def _spoil_obs(_args: tuple[Any, ...], result: Any) -> None:  # noqa: ANN401 - a StepResult
    result.obs[0, 0] = np.nan


def _spoil_reward(_args: tuple[Any, ...], result: Any) -> None:  # noqa: ANN401 - a StepResult
    result.reward[0] = np.nan


def _spoil_port(args: tuple[Any, ...], _result: object) -> None:
    args[0].obs[0, 0] = np.nan


def _spoil_claim(args: tuple[Any, ...], _result: object) -> None:
    args[0]._claimed.reward.reshape(-1)[0] = np.nan
