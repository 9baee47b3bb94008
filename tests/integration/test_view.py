"""The server of `ipusim show --perfetto`: whom it answers, and with what."""

import http.client
from urllib.parse import urlsplit

import pytest

from ipusim.app.run_folder.view import serve
from ipusim.base.errors import FileError


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serve a trace beside a folder with a page; give a function that asks for a path."""
    tmp_path = tmp_path_factory.mktemp("view")
    trace, perfetto = tmp_path / "trace.pftrace", tmp_path / "perfetto"
    trace.write_bytes(b"\n\x01\x02")
    (perfetto / "v1").mkdir(parents=True)
    (perfetto / "index.html").write_text("the page")
    with serve(trace, perfetto) as address:
        port = urlsplit(address).port

        def ask(path, host=f"127.0.0.1:{port}", method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.putrequest(method, path, skip_host=True)
            if host is not None:
                connection.putheader("Host", host.format(port=port))
            connection.endheaders()
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, content

        yield ask


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_this_machine_is_answered(served, host):
    assert served("/localtrace", host) == (200, b"\n\x01\x02")
    assert served("/index.html", host) == (200, b"the page")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/localtrace", "/file_info", "/index.html", "/"])
@pytest.mark.parametrize("host", ["evil.example:{port}", "localhost", "127.0.0.1:1", "localhost.evil:{port}", "", None])
def test_another_host_is_refused(served, host, path, method):
    """A page elsewhere whose name leads to this machine would read the trace."""
    status, content = served(path, host, method)
    assert status == 421
    assert b"the page" not in content


@pytest.mark.parametrize("path", ["/%00", "/index.html%00", "/a%00b?c", "/v1/%00/.."])
def test_a_nul_in_a_path_is_refused_without_a_traceback(served, path, capfd):
    assert served(path)[0] == 400
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["/v1/", "/../trace.pftrace", "/%2e%2e/trace.pftrace", "/trace.pftrace", "/v1"])
def test_nothing_else_is_served(served, path):
    status, content = served(path)
    assert status in {301, 404}
    assert b"\x01" not in content


@pytest.mark.parametrize("content", [b"root:x:0:0:root", b"", b"-----BEGIN", b"0123456789"])
def test_a_file_that_is_no_trace_is_not_served(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileError, match=r"file: expected a trace in a format of Perfetto, got another file$"):
        serve(tmp_path / "file", tmp_path).__enter__()
