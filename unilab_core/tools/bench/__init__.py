"""``unilab-bench``: figures that anyone can measure again.

Every benchmark prints a table and, with ``--json``, one object as its last line:
``{"bench", "machine", "versions", "settings", "rows", "ok"}``. ``ok`` is whether the promised ratio
holds. Ratios compare figures of the same run, in alternating blocks, because machines are shared.

- ``collector``: the whole collector process against an echo, divided by raw physics
- ``slot``: inference slot round trip against a bare doorbell ping-pong plus the copies
- ``startup``: first tick after torch is imported
- ``walk``: time until a policy passes the evaluation
- ``trace``: a job that writes RL traces against the same job without
- ``learn``: returns of small Gymnasium tasks beside published scores
- ``faults``, ``nemesis``, ``cycles``: what a job does on a bad day (``unilab_core.tools.faults``)
"""
