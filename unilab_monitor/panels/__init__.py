"""One widget per file. Each is a pure function from a view to lines, on top of `line_panel`.

| file | shows |
|---|---|
| `line_panel.py` | the widget under all panels: repaints changed lines only |
| `frame.py` | the rounded frame of a card |
| `ground.py` | containers that are only background |
| `panel_row.py` | panels side by side at one height, or stacked |
| `header.py` | algorithm, task, device, iteration; elapsed, ETA, rates, window, state; progress |
| `metrics.py` | losses and policy, training diagnostics, ingress gauges |
| `rewards.py` | mean return, trend, peak, course, terms, terminations |
| `clocks.py` | the learner's and the collector's time line, apart or in one column |
| `system.py` | buffer, time-outs, environments, batch, CUDA MPS |
| `status.py` | diagnosis, processes, events |
| `footer.py` | keys, and what a stop request is doing |
"""
