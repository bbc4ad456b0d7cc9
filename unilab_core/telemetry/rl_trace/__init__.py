"""RL trace: three kinds of files that describe an RL run, their writers, reader and figures.

Writing (standard library only):
    formats            directory, columns, stage names, statuses, line wording
    trajectory_record  one finished trajectory and its JSON line
    line_files         append-only line files behind a bounded queue and one thread
    emitter            RlTraceEmitter, the API that frameworks call

Reading (numpy):
    damage             counters of damaged input
    csv_rows           grammar of one sample-flow row
    stage_aliases      which event is which milestone (`stage_aliases.toml`)
    tails              growing files, cut at complete lines
    flow_shards        sample-flow bytes to columns
    hash_runs          set of 64-bit hashes in sorted runs (duplicate rows)
    flow_store         columns folded into one record per trajectory
    flow_figures       transitions, funnel, flow, stuck list, waste, staleness
    step_figures       one row per training step
    progress_lines     grammar of one progress line
    progress_store     lines of all progress files with their times
    progress_figures   sessions, steps, stages, pace
    trajectory_text    bounded parsing of trajectory lines of any length
    trajectory_index   where each trajectory is, and its summary
    trace_view         all events of one trajectory
    reader             TraceReader, which ties these together
    document           the machine-readable object
    state_file         arrival times and positions kept over a restart of the monitor
"""
