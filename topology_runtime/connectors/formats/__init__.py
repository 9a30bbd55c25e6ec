"""What the bytes of one message say: JSON, MessagePack, Avro, CSV and raw bytes, as rows and back."""
