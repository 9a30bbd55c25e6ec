"""A connector of a real service, for the scenarios of every connector: each has a service of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from headgate.topology_runtime.testing.conformance.under_test import WRONG_SECRET, UnderTest
from real_services import Service
from real_services.service import Login

LOGIN = Login("ada", "r1ght-secret-9264")


class OnService(UnderTest):
    kind: type[Service]
    login: Login | None = LOGIN

    def start(self) -> None:
        if why := self.kind.missing():
            pytest.skip(why)
        self.place = Path(tempfile.mkdtemp(prefix="headgate-services-"))
        self.place.chmod(0o711)  # some run as users of their own, who cannot get into pytest's folders
        self.service = self.kind(self.place / "service", login=self.login).start()

    def stop(self) -> None:
        if hasattr(self, "service"):
            self.service.close()
        if hasattr(self, "place"):
            shutil.rmtree(self.place)

    def kill(self) -> None:
        self.service.kill()

    def start_again(self) -> None:
        self.service.start_again()

    def params(self) -> dict[str, Any]:
        who = {"user": self.login.user, "password": self.login.password} if self.login is not None else {}
        return {"url": self.service.url, **who}

    def wrong_secret(self) -> dict[str, Any]:
        return self.params() | {"password": WRONG_SECRET}
