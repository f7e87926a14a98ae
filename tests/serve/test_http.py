# SPDX-License-Identifier: LGPL-2.1-or-later
"""The HTTP server as clients see it, good ones and bad ones."""
import concurrent.futures
import gzip
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@pytest.fixture
def server(start):
    s = start("127.0.0.1:0")
    s.wait_for("ready")
    return s


@pytest.fixture
def large(start):
    s = start("127.0.0.1:0", cgroups=3000)
    s.wait_for("ready")
    return s


def ask(server, path, method="GET", headers=None, body=None, host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, server.ports[0], timeout=20)
    connection.request(method, path, body=body, headers=headers or {})
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply, data


def stable(text):
    """A scrape without the line that is new in each."""
    return re.sub(rb"(?m)^delayd_exits_received_total .*$", b"", text)


def raw(server, data, timeout=20):
    """Sends bytes and returns all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=timeout) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := s.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize("path,status,content_type", [
    ("/", 200, "text/html; charset=utf-8"),
    ("/metrics", 200, METRICS_TYPE),
    ("/-/healthy", 200, "text/plain; charset=utf-8"),
    ("/-/ready", 200, "text/plain; charset=utf-8"),
    ("/api/v1/status", 200, "application/json"),
    ("/api/v1/cgroups?window=5m&kind=blkio%20swapin&sort=p99&limit=2&recursive=yes", 200, "application/json"),
    ("/api/v1/histogram?cgroup=/system.slice/db.service", 200, "application/json"),
    ("/api/v1/histogram?cgroup=/we%22ird%5Cx2d%0a%ff%c3%a9&kind=blkio&window=3600", 200, "application/json"),
    ("/api/v1/histogram?cgroup=/nowhere", 404, "application/json"),
    ("/api/v1/histogram?cgroup=%ff%fe", 404, "application/json"),
    ("/api/v1/histogram?cgroup=/%00job", 400, "application/json"),
    ("/api/v1/histogram", 400, "application/json"),
    ("/api/v1/cgroups?" + "&".join(f"a{i}=1" for i in range(40)), 400, "application/json"),
    ("/api/v1/cgroups?limit=x", 400, "application/json"),
    ("/api/v1/tasks", 404, "application/json"),
    ("/nothing", 404, "text/plain; charset=utf-8"),
    ("/" + "x" * 5000, 404, "text/plain; charset=utf-8"),
])
def test_status_and_type(server, path, status, content_type):
    reply, data = ask(server, path)
    assert (reply.status, reply.getheader("Content-Type")) == (status, content_type), data
    assert reply.getheader("Cache-Control") == "no-store"
    assert data.endswith(b"\n")
    data.decode("utf-8")
    if content_type == "application/json":
        assert ("error" in json.loads(data)) == (status != 200)

    head, nothing = ask(server, path, method="HEAD")
    assert (head.status, head.getheader("Content-Type")) == (status, content_type)
    assert nothing == b""
    assert int(head.getheader("Content-Length")) == len(data)


def test_other_methods_are_refused_at_once(server):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"):
        for path in ("/metrics", "/api/v1/status"):
            reply, data = ask(server, path, method=method, body=b"x" * 100)
            assert reply.status == 405 and reply.getheader("Allow") == "GET, HEAD", (method, path)
            assert b"GET and HEAD" in data

    # Without waiting for a body that never comes.
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=10) as s:
        s.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 405 ")


def test_get_with_a_body(server):
    reply, data = ask(server, "/-/ready", body=b"x" * 200000)
    assert (reply.status, data) == (200, b"ready\n")


def test_keep_alive(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.ports[0], timeout=10)
    for _ in range(50):
        connection.request("GET", "/-/healthy")
        reply = connection.getresponse()
        assert (reply.status, reply.read()) == (200, b"ok\n")
    connection.close()


@pytest.mark.parametrize("accept,compressed", [
    (None, False), ("gzip", True), ("gzip, deflate", True), ("identity", False), ("gzip;q=0", False),
    ("*", True), ("br;q=1.0, gzip;q=0.2", True), ("identity;q=1, gzip;q=0.5", False),
])
def test_gzip(large, accept, compressed):
    plain = ask(large, "/metrics", headers={"Accept-Encoding": "identity"})[1]
    connection = http.client.HTTPConnection("127.0.0.1", large.ports[0], timeout=20)
    connection.putrequest("GET", "/metrics", skip_accept_encoding=True)
    if accept is not None:
        connection.putheader("Accept-Encoding", accept)
    connection.endheaders()
    reply = connection.getresponse()
    data = reply.read()
    assert (reply.getheader("Content-Encoding") == "gzip") == compressed
    assert reply.getheader("Vary") == "Accept-Encoding"
    assert stable(gzip.decompress(data) if compressed else data) == stable(plain)
    assert len(plain) > 1000000


def test_gzip_over_http_1_0(large):
    plain = ask(large, "/metrics")[1]
    head, body = raw(large, b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").split(b"\r\n\r\n", 1)
    assert b"Content-Encoding: gzip" in head and b"chunked" not in head
    assert stable(gzip.decompress(body)) == stable(plain)


def test_small_replies_stay_plain(server):
    reply, data = ask(server, "/-/healthy", headers={"Accept-Encoding": "gzip"})
    assert reply.getheader("Content-Encoding") is None and data == b"ok\n"


def test_concurrent_scrapes(large):
    plain = ask(large, "/metrics")[1]
    results = []

    def scrape(i):
        reply, data = ask(large, "/metrics", headers={"Accept-Encoding": "gzip"} if i % 2 else {})
        results.append(stable(gzip.decompress(data) if i % 2 else data) == stable(plain) and reply.status == 200)

    threads = [threading.Thread(target=scrape, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 40


def test_scrapes_are_fresh(server):
    counts = [int(re.search(rb"(?m)^delayd_exits_received_total (\d+)$", ask(server, "/metrics")[1]).group(1))
              for _ in range(5)]
    assert counts == sorted(set(counts)) and len(counts) == 5


def test_slow_readers_hold_nobody_up(large):
    slow = []
    for _ in range(20):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", large.ports[0]))
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.append(s)
    for s in slow:
        assert s.recv(10).startswith(b"HTTP/1.1 ")

    begin = time.monotonic()
    for _ in range(10):
        assert ask(large, "/-/healthy")[0].status == 200
    assert time.monotonic() - begin < 2

    # What they hold is bounded: beyond that a large reply is refused, and comes again when they go.
    assert ask(large, "/-/ready")[0].status == 200
    status = {ask(large, "/metrics")[0].status for _ in range(3)}
    assert status <= {200, 503}
    for s in slow:
        s.close()
    deadline = time.monotonic() + 10
    while ask(large, "/metrics")[0].status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_slow_senders(server):
    """Many half-sent requests at once, each byte on its own."""
    sockets = [socket.create_connection(("127.0.0.1", server.ports[0]), timeout=10) for _ in range(30)]
    for byte in b"GET /-/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":
        for s in sockets:
            s.sendall(bytes([byte]))
    for s in sockets:
        answer = b""
        while chunk := s.recv(4096):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"ready\n")
        s.close()


def test_clients_that_go_away(large):
    for i in range(60):
        s = socket.create_connection(("127.0.0.1", large.ports[0]), timeout=10)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"[:20 + i])
        s.close()
    assert ask(large, "/-/healthy")[0].status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"],
                         ids=["silent", "half a request", "answered"])
def test_held_connections_shut_nobody_out(server, sent):
    """The one that was silent longest goes, and is told; the latest ones stay."""
    held = []
    for _ in range(100):
        held.append(socket.create_connection(("127.0.0.1", server.ports[0]), timeout=10))
        held[-1].sendall(sent)
    for _ in range(5):
        begin = time.monotonic()
        assert ask(server, "/-/healthy")[0].status == 200
        assert time.monotonic() - begin < 1

    assert is_closed(held[0]) and not is_closed(held[-1])
    for s in held:
        s.close()


def is_closed(s):
    s.settimeout(0.5)
    try:
        while s.recv(65536):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_replies_that_are_being_read_are_not_dropped(large):
    held = []
    for _ in range(64):
        held.append(socket.create_connection(("127.0.0.1", large.ports[0]), timeout=20))
        held[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        health = pool.submit(ask, large, "/-/healthy")
        for s in held:
            answer = b""
            while chunk := s.recv(65536):
                answer += chunk
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") or head.startswith(b"HTTP/1.1 503 "), head
            assert body.endswith(b"\r\n0\r\n\r\n") if b"chunked" in head else head.startswith(b"HTTP/1.1 503 ")
        assert health.result()[0].status == 200


@pytest.mark.parametrize("request_bytes", [
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
    b"GET /" + b"y" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(5000)) + b"\r\n",
    b"GET /metrics HTTP/1.1\r\n\r\n",                      # no Host
    b"GET /metrics\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"\r\n" * 1000,
    b"GET /metrics HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET /api/v1/histogram?cgroup=%&kind=%zz&&&=&window HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"",
], ids=lambda data: repr(data[:30]))
def test_nonsense(server, request_bytes):
    try:
        answer = raw(server, request_bytes, timeout=1)
    except OSError:  # the server hung up, in one of many ways
        answer = b""
    if b"Host" in request_bytes and b"Length" in request_bytes or len(request_bytes) > 50000:
        assert not answer or re.match(rb"HTTP/1\.[01] [45]\d\d ", answer), answer[:100]
    assert ask(server, "/-/healthy")[0].status == 200


def test_idle_connections_cost_no_time(server):
    """No spinning while clients are connected and silent, nor after they were answered."""
    held = [socket.create_connection(("127.0.0.1", server.ports[0]), timeout=10) for _ in range(5)]
    ask(server, "/metrics")
    time.sleep(0.3)

    def ticks():
        fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(1)
    assert ticks() - before <= 2
    for s in held:
        s.close()


def test_all_addresses(start):
    s = start("127.0.0.1:0", "[::1]:0", ":0")
    s.wait_for("ready")
    for host, port in (("127.0.0.1", 0), ("::1", 1), ("127.0.0.1", 2), ("::1", 2)):
        connection = http.client.HTTPConnection(host, s.ports[port], timeout=10)
        connection.request("GET", "/-/ready")
        assert connection.getresponse().status == 200
        connection.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", s.ports[0]), timeout=2)


@pytest.mark.parametrize("address", ["", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80",
                                     "[::1]", "[]:80", "[::1]80", "localhost:80", "127.0.0.1:80 ", "x" * 500 + ":1",
                                     "127.0.0.1:-1", "127.0.0.1:99999999999999999999999"])
def test_bad_addresses(start, address):
    s = start(address)
    s.wait_for("127.0.0.1:10066, [::1]:10066 or :10066")
    assert s.process.wait(10) == 1


def test_address_in_use(server, start):
    other = start(f"127.0.0.1:{server.ports[0]}")
    other.wait_for(f"Cannot listen on 127.0.0.1:{server.ports[0]}: another program does.")
    other.wait_for("Metrics.Listen=")
    assert other.process.wait(10) == 1


def test_stops_in_the_middle_of_replies(large):
    sockets = []
    for encoding in (b"identity", b"gzip") * 5:
        s = socket.create_connection(("127.0.0.1", large.ports[0]), timeout=10)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: " + encoding + b"\r\n\r\n")
        s.recv(1)
        sockets.append(s)
    assert large.stop() == 0
    for s in sockets:
        s.close()


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool")
def test_promtool_finds_nothing(server):
    data = ask(server, "/metrics")[1]
    result = subprocess.run(["promtool", "check", "metrics"], input=data, capture_output=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_python_client_reads_it(large):
    parser = pytest.importorskip("prometheus_client.parser")
    text = ask(large, "/metrics")[1].decode()
    seen = set()
    histograms = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation and family.type != "unknown", family.name
        assert family.name not in seen
        seen.add(family.name)
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, key
            seen.add(key)
            if family.type == "histogram":
                group = histograms.setdefault((family.name, sample.labels["cgroup"]), {"buckets": []})
                if sample.name.endswith("_bucket"):
                    group["buckets"].append((float(sample.labels["le"]), sample.value))
                else:
                    group[sample.name.rsplit("_", 1)[1]] = sample.value
    assert len(histograms) == 2 * (3000 + 7)
    for group in histograms.values():
        bounds, counts = zip(*group["buckets"])
        assert list(bounds) == sorted(bounds) and list(counts) == sorted(counts)
        assert bounds[-1] == float("inf") and counts[-1] == group["count"]
        assert (group["sum"] > 0) == (group["count"] > 0)
    assert ("delayd_cgroup_blkio_delay_seconds", '/we"ird\\x2d\\x0a\\xffé') in histograms
