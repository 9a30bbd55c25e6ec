"""What the bytes of one message say: JSON, MessagePack, Avro, Protobuf, CSV and raw bytes, as rows and back."""
