"""Telemetry: one metric schema, one logger, many readers. Loads neither torch nor mujoco.

| file | what it holds |
|---|---|
| `metric_table.py` | every tag once: unit, owner, aggregation, algorithms, meaning |
| `metric_spec.py` | the columns of that table |
| `metric_schema.py` | the version, the fail-closed rules, look-ups |
| `legacy_tags.py` | tags of runs older than schema 1, with their factors (read only) |
| `records.py` | the msgpack records of the metric rings: builders and strict parsers |
| `window.py` | the two-second window, reward history, tail throughput |
| `plain.py` | numbers, durations, the plain progress line, `sanitize` for foreign text |
| `diagnosis.py` | the six-row bottleneck table as a function, the timing contract alarm |
| `collector_fold.py` | the collector records of one iteration as canonical scalars |
| `training_logger.py` | the one place a learner hands its iteration to |
| `event_file.py` | TensorBoard event files: whole records written, read back |
| `crc32c.py` | their checksum, fast enough for the training process |
| `tensorboard_sink.py` | the bounded drop-oldest thread in front of an event file |
| `phase_timer.py` | exclusive phases of a loop in ns |
| `render_docs.py` | docs/metrics.md from the tables above |
"""
