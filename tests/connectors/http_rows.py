"""A type of rows that tests name."""

import msgspec


class Order(msgspec.Struct):
    id: int
    price: float
