"""RL trace: three kinds of files that describe an RL run, their writers, reader and figures.

Writing (standard library only):
    formats            directory, columns, stage names, statuses, line wording
    trajectory_record  one finished trajectory and its JSON line
    line_files         append-only line files behind a bounded queue and one thread
    emitter            RlTraceEmitter, the API that frameworks call

Reading (numpy):
    damage             counters of damaged input
    tails              growing files, cut at complete lines
    csv_rows           grammar of one sample-flow row
    stage_aliases      which event is which milestone (`stage_aliases.toml`)
    span_hash          64-bit hashes of many byte spans at once
    flow_ids           numbers for jobs, prompts, trajectories, contents
    flow_shards        sample-flow bytes to columns
    hash_runs          set of 64-bit hashes in sorted runs (duplicate rows)
    flow_store         columns folded into one record per trajectory
    flow_table         the trajectories of one job as columns of times
    flow_parts         what a block of trajectories contributes to the figures
    flow_lengths       lengths of transitions and their percentiles
    flow_blocks        contributions kept until their block changes
    flow_figures       transitions, funnel, flow, stuck list
    flow_waste         waste, loss, staleness, idle time
    step_figures       one row per training step
    progress_lines     grammar of one progress line
    progress_store     lines of all progress files with their times
    progress_fold      lines folded into sessions, steps and stages
    progress_times     times of lines: exact, arrival, anchor
    progress_figures   stages, pace, ETA
    trajectory_text    bounded parsing of trajectory lines of any length
    trajectory_view    one trajectory with its turns
    trajectory_index   where each trajectory is, and its summary
    trajectory_match   trajectory lines and sample flow together
    trace_view         all events of one trajectory
    snapshot           Snapshot: all figures at one time
    reader             TraceReader, which ties these together
    document           the machine-readable object
    state_file         arrival times and positions kept over a restart of the monitor
    demo_trace         generated trace directories
    demo_live          a generated run that goes on
"""
