"""Changes of a table of PostgreSQL become Parquet in a bucket of S3, for Spark or anything else to read.

    scripts/example changes

That starts PostgreSQL and an S3, changes orders, and asks Spark for the orders as they are now. With services of your
own: POSTGRES_URL, POSTGRES_PASSWORD, a publication `orders` (`create publication orders for table orders`), BUCKET
(`s3://…`), S3_URL, S3_KEY and S3_SECRET. To end, drop the slot: `select pg_drop_replication_slot('lake')`.
"""

import os
from typing import Any

from headgate import topology
from headgate.connectors import FolderSink, PostgresChanges

Row = dict[str, Any]
COLUMNS = ("id", "status", "cents")


def flat(change: Row) -> Row:
    """Of a change the order that it left or, if it was deleted, its id; the greater offset is the later change."""
    order = change["row"] or {**change["old"], "status": None, "cents": None}
    return {"op": change["op"], "offset": change["offset"], **{name: order[name] for name in COLUMNS}}


flow = topology("changes")
changes = flow.source(
    "changes",
    PostgresChanges,
    url=os.environ.get("POSTGRES_URL", "postgresql://app@127.0.0.1:5432/app"),
    password="${ENV:POSTGRES_PASSWORD}",
    slot="lake",
    publication="orders",
)
store = flow.task(
    "store",
    FolderSink,
    folder=os.environ.get("BUCKET", "s3://orders") + "/changes",
    format="parquet",
    batch_rows=1_000,
    batch_age_s=2.0,
    options={
        "key": os.environ.get("S3_KEY", "test"),
        "secret": "${ENV:S3_SECRET}",
        "endpoint_url": os.environ.get("S3_URL", "http://127.0.0.1:5000"),
    },
)
changes >> flow.task("flat", flat) >> store
