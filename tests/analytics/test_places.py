"""Paths and URIs name the same kind of place."""

import pytest

from headgate.dashboards.analytics.data_places import place


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("s3a://bucket/traces/demo", "bucket/traces/demo"),
        ("abfss://box@account.dfs.core.windows.net/traces", "box/traces"),
        ("hdfs://name:9000/traces", "/traces"),
        ("gs://bucket/traces/", "bucket/traces"),
    ],
)
def test_a_uri_is_kept_for_spark_and_split_for_the_file_system(text, path):
    found = place(text)
    assert (found.uri, found.path, found.local) == (text.rstrip("/"), path, False)
    assert (found / "a").uri == f"{text.rstrip('/')}/a"
    assert (found / "a").parent == found


def test_a_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place("traces").path == place(f"file://{tmp_path}/traces").path == str(tmp_path / "traces")


def test_what_is_written_is_there_whole_and_nothing_else(tmp_path):
    file = place(tmp_path) / "deep" / "a.json"
    file.write(b"1")
    file.write(b"22")
    assert file.read() == b"22"
    assert [child.name for child, _ in file.parent.children()] == ["a.json"]


def test_a_folder_that_is_not_there_has_no_children(tmp_path):
    assert (place(tmp_path) / "nowhere").children() == []
