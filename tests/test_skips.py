"""CI accepts only the skips that tests/conftest.py lists."""

from types import SimpleNamespace

import pytest

import conftest


def outcome(reason, monkeypatch, ci="true", **more):
    monkeypatch.setenv("CI", ci)
    report = SimpleNamespace(skipped=True, outcome="skipped", longrepr=("test_x.py", 1, f"Skipped: {reason}"), **more)
    conftest.refuse_unexpected_skip(report)
    return report.outcome


def test_an_unexpected_skip_fails(monkeypatch):
    reason = "could not import 's3fs': No module named 's3fs'"
    assert outcome(reason, monkeypatch) == "failed"
    assert outcome(reason, monkeypatch, ci="") == "skipped"
    assert outcome(reason, monkeypatch, wasxfail="known") == "skipped"


@pytest.mark.parametrize("reason", ["no browser here", "could not import 'scanpy': No module named 'scanpy'"])
def test_listed_reasons_pass(monkeypatch, reason):
    assert outcome(reason, monkeypatch) == "skipped"
