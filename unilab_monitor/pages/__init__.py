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
row_table        a data table that keeps its cursor while rows change
strokes          bars, chains and axes as styled text
"""
