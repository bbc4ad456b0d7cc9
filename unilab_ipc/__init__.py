"""Shared memory, doorbells and liveness between the processes of one job (Linux).

errors          what can go wrong, one class per cause
layout          one table per segment; offsets, views, size, fingerprint and docs derive from it
segments        all tables
memory          create / attach POSIX shared memory, or the same layout inside one process
clock           the monotonic clock, and a manual one for tests
names           run ids, segment names, job names
registry        one 0700 folder per job: records, doorbells, owner lock
gc              removes what dead runs left, with proof of death
doorbell        FIFO wake-ups
peers           process identity, pidfds, signals
waiting         the one way to wait: bell + peers + stop + time limit
heartbeat       who is alive, in which phase, waiting for whom
inference_slot  observations -> actions, one request in flight
slot_ring       the claim/commit/acquire/release core shared by the two experience rings
replay_ingress  transitions of SAC and FlashSAC
rollout_ring    rollouts of APPO
policy_snapshot weights, newest wins
metric_queue    lossy broadcast of msgpack records
"""
