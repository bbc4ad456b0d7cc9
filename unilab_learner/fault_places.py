"""Where the learner can be struck by `UNILAB_FAULT`; see `unilab_core.run.fault_point`.

Owners are names: what a fault does not touch is not imported for it.
"""

from typing import Any

from unilab_core.run.fault_point import Place, entering
from unilab_core.run.faults import Fault

_LOGGER = "unilab_core.telemetry.training_logger:TrainingLogger"
_STORE = "unilab_learner.checkpoint:CheckpointStore"
_SNAPSHOT = "unilab_ipc.policy_snapshot:SnapshotWriter"
_CONSUMER = "unilab_ipc.slot_ring:SlotConsumer"
_LEARNER = {
    "sac": "unilab_learner.sac_learner:SacLearner",
    "flashsac": "unilab_learner.flash_sac_learner:FlashSacLearner",
    "ppo": "unilab_learner.ppo_learner:PpoLearner",
    "appo": "unilab_learner.appo_learner:AppoLearner",
}


def places(fault: Fault, algo: str) -> tuple[Place, ...]:
    """The places of one fault of the learner in a job of `algo`."""
    if fault.action == "nan":
        return (_nan_place(fault.phase, algo),)
    if fault.action == "enospc":
        return (_ENOSPC[fault.phase],)
    return (_place(fault.phase, algo),)


def _place(phase: str, algo: str) -> Place:
    learn = _LEARNER.get(algo, "")
    special = {
        ("P3", "ppo"): Place(owner=_LOGGER, method="mark_trainable"),
        ("P3", "appo"): Place(owner=_LOGGER, method="mark_trainable"),
        ("P4b", "appo"): Place(
            owner="unilab_learner.async_loop:AsyncLoop", method="_wait_for_rollout"
        ),
        ("P4c", "ppo"): Place(
            owner="unilab_learner.slot_vec_env:SlotVecEnv", method="_await_request", moment="after"
        ),
        ("P4d", "appo"): Place(
            owner=_SNAPSHOT, method="_publish_steps", moment="half a cell written"
        ),
    }
    usual = {
        "P0": entering("startup/wait_job"),
        "P1": Place(owner="unilab_core.run.child", method="_open_context"),
        "P2": entering("startup/attach"),
        "P3": Place(owner=_LOGGER, method="report_status"),
        "P4a": Place(owner=learn, method="learn"),
        "P4b": Place(owner="unilab_ipc.inference_slot:LearnerPort", method="respond"),
        "P4c": Place(owner=_CONSUMER, method="release"),
        # The next answer comes from the new weights: there is no other publication.
        "P4d": Place(owner=learn, method="learn", moment="after"),
        "P4e": Place(owner=_CONSUMER, method="release"),
        "P4f": Place(
            owner="unilab_ipc.metric_queue:RingWriter", method="_write_steps", moment="head stored"
        ),
        # The temporary file is written, but neither synced nor renamed.
        "P5": Place(owner="unilab_core.run.whole_file", method="_sync"),
        "P6": entering("finalize/logger_finish"),
        "P7": Place(owner=_STORE, method="load", moment="after"),
    }
    return special.get((phase, algo)) or usual[phase]


def _nan_place(phase: str, algo: str) -> Place:
    learn = _LEARNER[algo]
    if phase == "P4a":
        return Place(owner=learn, method="learn", spoil=_spoil_actor)
    if phase == "P5":
        return Place(owner=_STORE, method="save", spoil=_spoil_content)
    if algo == "appo":
        return Place(owner=_SNAPSHOT, method="publish", spoil=_spoil_values)
    return Place(owner=learn, method="learn", moment="after", spoil=_spoil_actor)


_ENOSPC = {
    "P4f": Place(owner="unilab_core.telemetry.event_file:EventFile", method="write"),
    "P5": Place(owner="unilab_core.run.whole_file", method="_sync"),
}


def _spoil_actor(args: tuple[Any, ...], _result: object) -> None:
    learner = args[0]
    # PPO's `acting` is a copy for the policy file.
    actor = learner.algorithm.actor if hasattr(learner, "algorithm") else learner.acting()[0]
    for parameter in actor.parameters():
        parameter.data.fill_(float("nan"))


def _spoil_values(args: tuple[Any, ...], _result: object) -> None:
    args[1][0] = float("nan")


def _spoil_content(args: tuple[Any, ...], _result: object) -> None:
    """A NaN in the first tensor of floating-point numbers of what is about to be saved."""
    waiting: list[Any] = [args[1]]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        elif hasattr(value, "is_floating_point") and value.is_floating_point():
            value.data.fill_(float("nan"))
            return
