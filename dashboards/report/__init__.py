"""The report of an analysis: one offline HTML file and a folder of plots, from `analysis.json` and `results/`."""

from headgate.dashboards.report.building import build

__all__ = ["build"]
