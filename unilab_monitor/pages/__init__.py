"""Pages about a trace directory: an application of its own, or tabs of another one.

trace_app        TraceApp, `run_trace_app(path)`, `main_once(path)`
trace_pages      TracePages, the five pages as one widget that can be mounted anywhere
trace_feed       the thread that owns the reader
trace_messages   what widgets and the feed tell each other
progress_page    (1) steps and stages
flow_page        (2) sample flow
trace_page       (3) one trajectory's events
trajectory_page  (4) one trajectory's turns
health_page      (5) damage, foreign files, how to check the directory
foreign_text     foreign text made harmless
row_table        a table that keeps its cursor and repaints only rows that changed
live_text        a text that repaints only lines that changed
still_text       a text that is seldom another one
trace_bench      how fast figures appear; live_bench: what the pages cost while a run goes on
strokes          bars, chains and axes as styled text
"""
