"""What is shown of a run, each a function of its newest view (`knowledge/run_view.py`) and of nothing else. Pure.

status, explanation, summary    documents for whoever asks
snapshots                       the document of the page, and numbered deltas of it
metrics, rate_rows              for Prometheus; for the trace
"""
