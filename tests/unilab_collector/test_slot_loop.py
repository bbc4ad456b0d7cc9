"""The collector's loop on real slot, ingress and ring, against a scripted learner."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from unilab_collector.episode_stats import EpisodeStats
from unilab_collector.guarded_env import GuardedEnv
from unilab_collector.replay_feed import ReplayFeed
from unilab_collector.slot_loop import SlotLoop
from unilab_collector.tick_report import CYCLE_PHASES, STEP_DETAILS, TickReporter
from unilab_core.config.training import NanGuardConfig
from unilab_core.contracts import TIMING_KEYS, EnvSpec, StepResult
from unilab_core.run.failures import EnvError, NonFiniteError
from unilab_core.telemetry.records import CollectorReport
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import Closed
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.segments import HEARTBEAT, INFERENCE_SLOT, METRIC_QUEUE, REPLAY_INGRESS
from unilab_ipc.waiting import Waiter

E, O, C, A = 3, 2, 4, 2  # noqa: E741 - the legend's letters
SPEC = EnvSpec(
    task="counting",
    sim="none",
    num_envs=E,
    obs_width=O,
    critic_obs_width=C,
    action_width=A,
    action_low=None,
    action_high=None,
    obs_terms=(("all", O),),
    critic_obs_terms=(("all", C),),
    reward_terms=("alive",),
    termination_terms=("time_out",),
    log_keys=("reward/alive", "Episode_Termination/time_out"),
    ctrl_dt_s=0.02,
    max_episode_steps=3,
    backend_device=None,
)


class CountingEnv:
    """Observations are 1000 * episode + step; environment 0 is truncated every third step.

    Arrays are overwritten in place, as the contract allows.
    """

    spec = SPEC

    def __init__(self):
        self.timings_ns = dict.fromkeys(TIMING_KEYS, 1000)
        self.episode = np.zeros(E)
        self.steps = np.zeros(E)
        self.before_step = lambda: None
        self.reward_value = 1.0
        self.result = StepResult(
            obs=np.zeros((E, O), np.float32),
            critic_obs=np.zeros((E, C), np.float32),
            reward=np.zeros(E, np.float32),
            terminated=np.zeros(E, bool),
            truncated=np.zeros(E, bool),
            final_obs=np.full((E, O), -1, np.float32),
            final_critic_obs=np.full((E, C), -1, np.float32),
            log={"reward/alive": 1.0, "Episode_Termination/time_out": 0.0},
        )

    def reset(self):
        self.fill()
        return self.result

    def fill(self):
        now = (1000 * self.episode + self.steps)[:, None]
        self.result.obs[:] = now
        self.result.critic_obs[:] = now

    def step(self, actions):
        assert actions.shape == (E, A)
        self.before_step()
        self.steps += 1
        result = self.result
        result.reward[:] = self.reward_value
        result.truncated[:] = False
        if self.steps[0] == 3:
            result.truncated[0] = True
            result.final_obs[0] = 1000 * self.episode[0] + 3
            result.final_critic_obs[0] = 1000 * self.episode[0] + 3
            self.episode[0] += 1
            self.steps[0] = 0
        result.log["Episode_Termination/time_out"] = float(result.truncated.sum())
        self.fill()
        return result

    def restart(self, ids):
        self.steps[ids] = 0
        self.episode[ids] += 1
        self.fill()

    def physics(self):
        return {}

    def close(self):
        pass


class ScriptedLearner(threading.Thread):
    """Answers with actions = tick, keeps what the ingress delivered, closes after some ticks."""

    def __init__(self, port, consumer, bell, ticks):
        super().__init__(daemon=True)
        self.port, self.consumer, self.bell, self.ticks = port, consumer, bell, ticks
        self.rows = []
        self.before_answer = lambda tick: None
        self.drains = True
        self.error = None

    def drain(self):
        while self.drains and (slot := self.consumer.try_acquire()) is not None:
            self.rows.append([array.copy() for array in slot.payload()])
            self.consumer.release()

    def run(self):
        try:
            waiter = Waiter(self.bell, [], lambda: False)

            def look():
                self.drain()
                return self.port.try_request()

            for tick in range(self.ticks + 1):
                seq = waiter.wait(look, timeout_s=20.0, awaits="collector")
                self.before_answer(tick)
                self.drain()
                self.port.actions[...] = tick
                self.port.respond(seq, tick, closed=tick == self.ticks)
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error


class Rig:
    def __init__(self, tmp_path, *, ticks=8, interval=1):
        self.slot_segment = local_segment(
            INFERENCE_SLOT, {"E": E, "O": O, "C": C, "A": A, "R": 0, "L": 0}
        )
        self.ingress_segment = local_segment(
            REPLAY_INGRESS, {"E": E, "O": O, "C": C, "A": A, "D": 2}
        )
        self.ring_segment = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
        board = HeartbeatBoard(local_segment(HEARTBEAT, board_dims(1)))
        mine = Doorbell.create(tmp_path / "collector.bell")
        theirs = Doorbell.create(tmp_path / "learner.bell")
        self.bells = (mine, theirs)
        self.stop = threading.Event()
        beat = board.role("collector", 0)
        beat.register()
        waiter = Waiter(mine, [], self.stop.is_set, beat)
        self.slot = InferenceSlot(self.slot_segment)
        self.ingress = ReplayIngress(self.ingress_segment)
        self.producer = self.ingress.producer(theirs.ring)
        self.env = CountingEnv()
        self.ready_at = []
        self.ring = RingWriter(self.ring_segment)
        self.stats = EpisodeStats(E)
        self.feed = ReplayFeed(self.producer, SPEC, waiter)
        self.reporter = TickReporter(ring=self.ring, stats=self.stats, rank=0, interval=interval)
        self.loop = SlotLoop(
            env=GuardedEnv(self.env, NanGuardConfig()),
            slot=self.slot,
            port=self.slot.collector_port(theirs.ring),
            feed=self.feed,
            stats=self.stats,
            reporter=self.reporter,
            waiter=waiter,
            beat=beat,
            learner_ready=lambda: self.ready_at.append(int(self.env.steps[0])),
        )
        self.learner = ScriptedLearner(
            self.slot.learner_port(mine.ring), self.ingress.consumer(mine.ring), theirs, ticks
        )

    def run(self):
        self.learner.start()
        try:
            return self.loop.run()
        finally:
            self.learner.join(5.0)

    def reports(self):
        records = RingReader(self.ring_segment).read(10_000)
        return [CollectorReport.from_record(record) for record in records]


@pytest.fixture
def make_rig(tmp_path):
    rigs = []

    def make(**kwargs):
        rigs.append(Rig(tmp_path, **kwargs))
        return rigs[-1]

    yield make
    for rig in rigs:
        for bell in rig.bells:
            bell.close()


def test_each_tick_is_written_once_with_its_action_and_true_next_state(make_rig):
    rig = make_rig(ticks=8)
    assert rig.run() == 8
    assert rig.learner.error is None
    assert len(rig.learner.rows) == 8
    for tick, row in enumerate(rig.learner.rows):
        obs, critic_obs, action, reward, terminated, truncated, _dropped, next_obs, next_critic = (
            row
        )
        episode, step = divmod(tick, 3)
        # Environment 0 starts again after three steps; the others go on counting.
        assert obs[0, 0] == 1000 * episode + step
        assert critic_obs[0, 0] == obs[0, 0]
        # The next state of an ended row is the old episode's last, not the new one's first.
        assert next_obs[0, 0] == 1000 * episode + step + 1
        assert next_critic[0, 0] == next_obs[0, 0]
        assert (obs[1, 0], next_obs[1, 0]) == (tick, tick + 1)
        assert action[0, 0] == tick
        assert truncated.tolist() == [step == 2, False, False]
        assert not terminated.any()
        assert reward.tolist() == [1.0] * E
    gauges = rig.ingress.gauges()
    assert gauges["published_sequence"] == gauges["release_sequence"] == 8
    assert rig.slot.flight()["queue_depth"] == 0


def test_reports_add_up_and_carry_cumulative_totals(make_rig):
    rig = make_rig(ticks=8)
    rig.run()
    reports = rig.reports()
    assert [report.tick for report in reports] == list(range(8))
    last = reports[-1]
    assert last.env_steps == 8 * E
    # Environment 0 ended after ticks 2 and 5, each episode 3 steps of reward 1.
    assert (last.episodes_completed, last.timeouts) == (2, 2)
    assert (last.mean_return, last.mean_length) == (3.0, 3.0)
    assert last.terminations_total == {"Episode_Termination/time_out": 2}
    for report in reports:
        assert set(report.timing) == {*CYCLE_PHASES, *STEP_DETAILS.values()}
        assert sum(report.timing[tag] for tag in CYCLE_PHASES) == pytest.approx(report.cycle_ms)
        assert report.cycle_ms <= report.wall_ms


def test_the_learner_is_ready_once_before_the_first_step(make_rig):
    rig = make_rig(ticks=3)
    rig.run()
    assert rig.ready_at == [0]


def test_an_interval_averages_its_ticks_into_one_report(make_rig):
    rig = make_rig(ticks=8, interval=3)
    rig.run()
    # Two whole intervals, and the rest at the end.
    assert [report.tick for report in rig.reports()] == [2, 5, 7]


@pytest.mark.parametrize(
    "tag",
    CYCLE_PHASES,
    ids=[tag.removeprefix("Perf/collector_").removesuffix("_ms") for tag in CYCLE_PHASES],
)
def test_a_delay_shows_in_its_own_phase_and_in_no_other(make_rig, monkeypatch, tag):
    rig = make_rig(ticks=6)
    delay_s = 0.1

    def slow(function):
        def wrapped(*args, **kwargs):
            time.sleep(delay_s)
            return function(*args, **kwargs)

        return wrapped

    phase = tag.removeprefix("Perf/collector_").removesuffix("_ms")
    if phase == "env_step":
        rig.env.before_step = lambda: time.sleep(delay_s)
    elif phase == "learner_action_wait":
        rig.learner.before_answer = lambda tick: time.sleep(delay_s)
    else:
        owner, name = {
            "inference_request": (rig.feed, "remember"),
            "metrics_publish": (rig.reporter, "publish_due"),
            "transition_extract": (rig.feed, "extract"),
            "replay_write": (rig.feed, "write"),
        }[phase]
        monkeypatch.setattr(owner, name, slow(getattr(owner, name)))
    rig.run()
    steady = rig.reports()[2:]
    # The fastest tick of each phase, so that a busy machine does not look like a delay.
    fastest_ms = {name: min(report.timing[name] for report in steady) for name in CYCLE_PHASES}
    assert fastest_ms.pop(tag) > delay_s * 1e3 * (0.9 if phase != "learner_action_wait" else 0.5)
    assert max(fastest_ms.values()) < delay_s * 1e3 * 0.5
    other_ms = min(report.wall_ms - report.cycle_ms for report in steady)
    assert other_ms < delay_s * 1e3 * 0.5


def test_a_full_ingress_makes_the_collector_wait_and_counts_it(make_rig):
    rig = make_rig(ticks=6)
    rig.learner.drains = False

    def free_after_a_while(tick):
        if tick == 2:
            time.sleep(0.05)

    rig.learner.before_answer = free_after_a_while
    opened = threading.Timer(
        0.3, lambda: (setattr(rig.learner, "drains", True), rig.bells[1].ring())
    )
    opened.start()
    rig.run()
    opened.join()
    gauges = rig.ingress.gauges()
    assert gauges["backpressure_waits"] >= 1
    assert gauges["backpressure_wait_s"] > 0.0
    assert gauges["dropped_batches"] == 0
    assert len(rig.learner.rows) == 6


def test_a_stop_while_the_ingress_is_full_leaves_and_counts_the_batch(make_rig):
    rig = make_rig(ticks=50)
    rig.learner.drains = False
    stopper = threading.Timer(0.3, lambda: (rig.stop.set(), rig.bells[0].ring()))
    stopper.start()
    rig.learner.start()
    with pytest.raises(Closed):
        rig.loop.run()
    stopper.join()
    gauges = rig.ingress.gauges()
    assert (gauges["stop_returns"], gauges["dropped_batches"]) == (1, 1)
    assert gauges["published_sequence"] == 2


def test_a_nan_reward_names_source_environment_and_tick(make_rig):
    rig = make_rig(ticks=6)

    def spoil():
        if rig.env.steps[1] == 4:
            rig.env.reward_value = np.array([1.0, np.nan, 1.0])

    rig.env.before_step = spoil
    with pytest.raises(NonFiniteError, match="reward NaN env 1 step 4"):
        rig.run()


def test_an_environment_exception_becomes_an_environment_failure_with_its_cause(make_rig):
    rig = make_rig(ticks=6)

    def fail():
        raise ZeroDivisionError("a term divided by zero")

    rig.env.before_step = fail
    with pytest.raises(EnvError, match="step 0: ZeroDivisionError: a term") as caught:
        rig.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_failure_that_names_its_owner_is_passed_on_as_it_is(make_rig):
    rig = make_rig(ticks=6)

    def fail():
        raise NonFiniteError("action", 1, 0)

    rig.env.before_step = fail
    with pytest.raises(NonFiniteError, match="action NaN env 1 step 0"):
        rig.run()
