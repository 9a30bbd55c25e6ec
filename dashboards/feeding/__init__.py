"""Where pictures of a run come from: a running controller, or a trace. `dashboards.feed` is the way in."""
