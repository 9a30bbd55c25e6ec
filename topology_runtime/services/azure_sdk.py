"""How Azure's SDKs (an extra: `headgate[azure]`) are reached, and what they are told of Azurite."""

from __future__ import annotations

import importlib
import threading
from types import ModuleType

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.services.addresses import Address

ACCOUNT = "devstoreaccount1"  # the documented development account; no secret
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

SDKS = BLOB_SDK, TABLE_SDK = "azure.storage.blob", "azure.data.tables"

_importing = threading.Lock()  # threads that import the SDKs at once can meet in a circle of module locks


def connection_string(address: Address) -> str:
    """For both SDKs: each takes the endpoint of its own service."""
    place = f"http://{address.host}:{address.port}/{ACCOUNT}"
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
        f"BlobEndpoint={place};TableEndpoint={place};"
    )


def sdk(module: str) -> ModuleType:
    """Azure's SDK, imported late: it takes 0.4 s. HeadgateError when it is not installed."""
    try:
        with _importing:
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        what = f"{module} is not installed: `pip install 'headgate[azure]'`, or use an embedded service"
        raise HeadgateError(what) from error
