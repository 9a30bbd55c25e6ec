"""Orders that are placed, paid and some deleted in PostgreSQL, and Spark over the Parquet files of their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import s3fs

from connected_examples.demo import Demo, Row
from real_services import S3, Postgres

PAID_EACH, DELETED_EACH = 5, 50
NOW = """
select coalesce(status, 'deleted') as status, count(*) as orders, sum(cents) as cents
from (select *, row_number() over (partition by id order by offset desc) as newest from changes)
where newest = 1 group by 1 order by 1
"""


def due(orders: int) -> int:
    """Changes of so many orders."""
    return orders + -(-orders // PAID_EACH) + -(-orders // DELETED_EACH)


class Changes(Demo):
    needs = (Postgres, S3)
    about = "orders as they are now, by Spark, from the Parquet files of their changes"

    def environment(self) -> Mapping[str, str]:
        login, store = self.services["postgres"].login, self.services["s3"].login
        assert login is not None and store is not None
        return {
            "POSTGRES_URL": self.services["postgres"].url,
            "POSTGRES_PASSWORD": login.password,
            "BUCKET": "s3://orders",
            "S3_URL": self.services["s3"].url,
            "S3_KEY": store.user,
            "S3_SECRET": store.password,
        }

    def _database(self) -> Any:
        login = self.services["postgres"].login
        assert login is not None
        return psycopg.connect(self.services["postgres"].url, password=login.password)

    def _bucket(self) -> Any:
        of = self.environment()
        return s3fs.S3FileSystem(
            key=of["S3_KEY"], secret=of["S3_SECRET"], endpoint_url=of["S3_URL"],
            use_listings_cache=False, skip_instance_cache=True,
        )  # fmt: skip

    def prepare(self) -> None:
        self._bucket().mkdir("orders")
        with self._database() as database:
            database.execute("create table orders (id bigint primary key, status text, cents bigint)")
            database.execute("create publication orders for table orders")

    def reads(self) -> bool:
        """Changes from before its slot was made are not in it."""
        with self._database() as database:
            return database.execute("select 1 from pg_replication_slots where active").fetchone() is not None

    def send(self, first: int, count: int) -> None:
        with self._database() as database, database.cursor() as cursor:
            for number in range(first, first + count):
                placed = (number, "placed", 100 + number * 37 % 9_900)
                cursor.execute("insert into orders values (%s, %s, %s)", placed)
                if number % PAID_EACH == 0:
                    cursor.execute("update orders set status = 'paid' where id = %s", (number,))
                if number % DELETED_EACH == 0:
                    cursor.execute("delete from orders where id = %s", (number,))

    def results(self, sent: int) -> list[Row] | None:
        """Spark reads a copy: to read S3 itself it needs the package hadoop-aws."""
        copy = self.folder / "copy"
        copy.mkdir(exist_ok=True)
        bucket = self._bucket()
        files = bucket.glob("orders/changes/*.parquet")
        for file in files:
            if not (place := copy / file.rpartition("/")[2]).exists():
                bucket.get_file(file, str(place))
        import pyarrow.dataset

        if not files or pyarrow.dataset.dataset(str(copy)).count_rows() < due(sent):
            return None
        from pyspark.sql import SparkSession

        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
        spark = SparkSession.builder.master("local[1]").config(map=quiet).getOrCreate()
        try:
            spark.read.parquet(str(copy)).createOrReplaceTempView("changes")
            return [row.asDict() for row in spark.sql(NOW).collect()]
        finally:
            spark.stop()
