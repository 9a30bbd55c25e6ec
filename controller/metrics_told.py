"""The controller's metrics, told on a port."""

from __future__ import annotations

from controller.views.metrics import Metrics, families


class ControllerMetricsPort(Metrics):
    """Metrics that are told on a port. Raises Unreachable when it cannot be had."""

    def __init__(self, host: str, port: int) -> None:
        from topology_runtime.metrics_port import MetricsPort

        super().__init__()
        self._port = MetricsPort(host, port, lambda: families(self.view))
        self.address = self._port.address

    def close(self) -> None:
        self._port.close()
