"""Fixtures that several test files share, and the rule that CI accepts only expected skips."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# reasons for which CI may skip a test: parts that pip cannot install, or that only .ci/full installs
ALLOWED_SKIPS = [
    r"could not import '(scanpy|igraph|umap|openTSNE)'",
    r"Fashion-MNIST",
    r"no browser here",
    r"no mounts here",
    r"SCIPY_ARRAY_API is not set",  # a check of scikit-learn's own
    r"only for rows that repeat",  # one case of a fixture that has several
]
# outside a checkout (.ci/full tests an installed package) there are no docs, examples or benchmarks to test
if not (Path(__file__).parents[1] / ".ci").exists():
    ALLOWED_SKIPS += [r"not beside the tests", r"installed without its source"]


def refuse_unexpected_skip(report):
    """Turn a skip into a failure if CI is set and no allowed reason matches; an expected failure is not a skip."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(re.search(allowed, reason) for allowed in ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"unexpected skip in CI: {reason}\nRepair the cause, or add the reason to tests/conftest.py."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    refuse_unexpected_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    refuse_unexpected_skip(report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with the mark `some(n)`, leave n cases in the fast suite, spread evenly; all others are slow."""
    cases = {}
    for item in items:
        if item.get_closest_marker("some"):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for same in cases.values():
        n_fast = min(same[0].get_closest_marker("some").args[0], len(same))
        fast = {(2 * i + 1) * len(same) // (2 * n_fast) for i in range(n_fast)}
        for number, item in enumerate(same):
            if number not in fast:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def close_figures():
    """Close the figures of a test: matplotlib warns when many stay open."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def s3_options():
    """Options that reach an S3 server on loopback (moto's, one for the whole run) with a bucket named "bucket"."""
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    code = (
        "import logging, sys; logging.getLogger('werkzeug').setLevel(logging.ERROR)\n"
        "from moto.server import ThreadedMotoServer\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n"
        "server.start(); print(server.get_host_and_port()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        port = int(server.stdout.readline())
        options = {"key": "someone", "secret": "secret", "endpoint_url": f"http://127.0.0.1:{port}"}
        s3fs.S3FileSystem(**options).mkdir("bucket")
        yield options
        server.kill()
