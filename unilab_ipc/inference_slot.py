"""The inference slot: observations out, actions back, one request in flight.

    collector                                   learner
    write obs, ...           ---- payload ---->
    request_seq = t          # SYNC POINT: request      try_request() -> t
    ring the learner                                    read obs, write actions, policy_version
                             # SYNC POINT: response     response_seq = t
    try_response(t)          <--- actions -----         ring the collector

Ownership: between `publish(t)` and the answer to `t` the learner owns the payload (reads requests,
writes actions); at any other time the collector does. The two never overlap, so nothing is copied
inside the slot. `consumed_seq` says which answers the collector has taken; it only feeds gauges.

A sequence number is stored as one aligned 8-byte word after everything it stands for (x86-64 keeps
the order of stores; the doorbell's system call orders them on other machines before the wake-up).

Symbols: E environments, O/C policy and critic observation widths, A actions, R transition rows
(E for PPO, 0 otherwise), L log values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from unilab_ipc.errors import IpcError, SegmentCorrupt
from unilab_ipc.layout import Dims, word
from unilab_ipc.memory import Segment

REQUEST_FIELDS = (
    "obs",
    "critic_obs",
    "done",
    "reward",
    "terminated",
    "truncated",
    "final_obs",
    "final_critic_obs",
    "log",
)


class Response(NamedTuple):
    """An answer: which policy chose the actions, and whether it was the last one."""

    policy_version: int
    closed: bool


class InferenceSlot:
    """The slot of one rank; each side takes its port once."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment, dims: Dims | None = None) -> None:
        if dims is not None and dict(dims) != segment.dims:
            raise ValueError(f"slot geometry must be {segment.dims}, got {dict(dims)}")
        self._segment = segment

    def collector_port(self, ring_peer: Callable[[], None]) -> "CollectorPort":
        """The side that publishes observations."""
        return CollectorPort(self._segment, ring_peer)

    def learner_port(self, ring_peer: Callable[[], None]) -> "LearnerPort":
        """The side that answers with actions."""
        return LearnerPort(self._segment, ring_peer)

    def flight(self) -> dict[str, int]:
        """Gauges: requests not answered, answers not taken, both, and how far answers lag."""
        view = self._segment.view
        # Oldest word first: each later one can only have moved on.
        consumed = int(view["consumed_seq"][()])
        response = int(view["response_seq"][()])
        request = int(view["request_seq"][()])
        queue_depth = int(request != response)
        action_backlog = int(response > consumed and response == request)
        return {
            "queue_depth": queue_depth,
            "action_backlog": action_backlog,
            "in_flight": queue_depth + action_backlog,
            "publication_lag": queue_depth,
        }


class CollectorPort:
    """Collector side: fill the arrays, `publish(seq)`, then ask `try_response(seq)`."""

    __slots__ = (
        "_closed",
        "_consumed_seq",
        "_policy_version",
        "_request_seq",
        "_response_seq",
        "_ring_peer",
        "actions",
        "critic_obs",
        "done",
        "dropped",
        "final_critic_obs",
        "final_obs",
        "log",
        "obs",
        "reward",
        "terminated",
        "truncated",
    )

    def __init__(self, segment: Segment, ring_peer: Callable[[], None]) -> None:
        view = segment.view
        self._ring_peer = ring_peer
        self._request_seq = word(view["request_seq"])
        self._consumed_seq = word(view["consumed_seq"])
        self._response_seq = word(view["response_seq"])
        self._policy_version = word(view["policy_version"])
        self._closed = word(view["closed"])
        self.obs = view["obs"]
        """[E, O]"""
        self.critic_obs = view["critic_obs"]
        """[E, C]"""
        self.done = view["done"]
        """[E]"""
        self.reward = view["reward"]
        """[R]"""
        self.terminated = view["terminated"]
        """[R]"""
        self.truncated = view["truncated"]
        """[R]"""
        self.dropped = view["dropped"]
        """[R]"""
        self.final_obs = view["final_obs"]
        """[R, O]"""
        self.final_critic_obs = view["final_critic_obs"]
        """[R, C]"""
        self.log = view["log"]
        """[L]"""
        self.actions = _read_only(view["actions"])
        """[E, A], valid after the answer and until the next `publish`"""

    def publish(self, seq: int) -> None:
        """Hand the arrays to the learner as request `seq` (larger than any before)."""
        pending = self._request_seq[0]
        if self._response_seq[0] != pending:
            raise IpcError(f"request {pending} is still in flight, cannot publish {seq}")
        if seq <= pending:
            raise IpcError(f"request seq must grow: {seq} after {pending}")
        # SYNC POINT: request
        self._request_seq[0] = seq
        self._ring_peer()

    def try_response(self, seq: int) -> Response | None:
        """The answer to `seq`, or None; `closed` also without an answer once the learner closed."""
        # SYNC POINT: response
        response_seq = self._response_seq[0]
        if response_seq == seq:
            self._consumed_seq[0] = seq
            return Response(self._policy_version[0], bool(self._closed[0]))
        if response_seq > seq:
            raise SegmentCorrupt(f"an answer to request {seq}", f"one to {response_seq}")
        if self._closed[0]:
            return Response(self._policy_version[0], True)
        return None


class LearnerPort:
    """Learner side: `try_request()`, read the arrays, fill `actions`, `respond`."""

    __slots__ = (
        "_closed",
        "_policy_version",
        "_request_seq",
        "_response_seq",
        "_ring_peer",
        "actions",
        "critic_obs",
        "done",
        "dropped",
        "final_critic_obs",
        "final_obs",
        "log",
        "obs",
        "reward",
        "terminated",
        "truncated",
    )

    def __init__(self, segment: Segment, ring_peer: Callable[[], None]) -> None:
        view = segment.view
        self._ring_peer = ring_peer
        self._request_seq = word(view["request_seq"])
        self._response_seq = word(view["response_seq"])
        self._policy_version = word(view["policy_version"])
        self._closed = word(view["closed"])
        self.obs = _read_only(view["obs"])
        """[E, O]; this and the following are valid between `try_request` and `respond`"""
        self.critic_obs = _read_only(view["critic_obs"])
        """[E, C]"""
        self.done = _read_only(view["done"])
        """[E]"""
        self.reward = _read_only(view["reward"])
        """[R]"""
        self.terminated = _read_only(view["terminated"])
        """[R]"""
        self.truncated = _read_only(view["truncated"])
        """[R]"""
        self.dropped = _read_only(view["dropped"])
        """[R]"""
        self.final_obs = _read_only(view["final_obs"])
        """[R, O]"""
        self.final_critic_obs = _read_only(view["final_critic_obs"])
        """[R, C]"""
        self.log = _read_only(view["log"])
        """[L]"""
        self.actions = view["actions"]
        """[E, A]"""

    def try_request(self) -> int | None:
        """Sequence number of a request that waits for its answer, or None."""
        # SYNC POINT: request
        request_seq = self._request_seq[0]
        response_seq = self._response_seq[0]
        if request_seq == response_seq:
            return None
        if request_seq < response_seq:
            raise SegmentCorrupt(f"a request after {response_seq}", f"request {request_seq}")
        return request_seq

    def respond(self, seq: int, policy_version: int, closed: bool = False) -> None:
        """Answer the pending request; `actions` must be complete."""
        self._write_answer(seq, policy_version, closed)
        # SYNC POINT: response
        self._response_seq[0] = seq
        self._ring_peer()

    def close(self) -> None:
        """No further answers: a waiting collector gets `Response(closed=True)`."""
        self._closed[0] = 1
        self._ring_peer()

    def _write_answer(self, seq: int, policy_version: int, closed: bool) -> None:
        if self._request_seq[0] != seq or self._response_seq[0] == seq:
            raise IpcError(f"request {self.try_request()} is pending, cannot answer {seq}")
        self._policy_version[0] = policy_version
        if closed:
            self._closed[0] = 1


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
