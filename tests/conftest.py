"""What several tests need; and what every test leaves behind is cleared away."""

import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def figures():
    """Figures stay open in a process that has pyplot, until matplotlib complains."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def s3_options():
    """Options that reach an S3 server of our own (moto's, on loopback), which has a bucket of that name."""
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
