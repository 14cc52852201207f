"""Why a cluster is not reached is one message, at once: Ray itself would try for minutes. No cluster is started."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

if importlib.util.find_spec("grpc") is None:
    pytest.skip("a cluster needs Ray: pip install -e '.[cluster]'", allow_module_level=True)

from qbench.fleet import reach
from qbench.fleet.reach import TLS_FILES, explain_unreachable

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")


@pytest.fixture(autouse=True)
def _no_settings_of_ray(monkeypatch, tmp_path):
    """Neither variables nor a token of whoever runs the tests."""
    for name in ("RAY_USE_TLS", *TLS_FILES, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_port_on_which_nobody_listens():
    """The system's own reason is said."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert f"nothing answers at 127.0.0.1:{port} (Connection refused)" in str(explain_unreachable(f"127.0.0.1:{port}"))


@pytest.mark.parametrize(("scheme", "port"), [("ray://", "10001"), ("", "6379")])
def test_the_other_port_of_a_cluster(scheme, port):
    """Each of the two kinds of address names the port that it means."""
    with serve(lambda token: "UNIMPLEMENTED") as address:
        assert f"which is {port} unless" in str(explain_unreachable(scheme + address))


def test_a_token_that_is_missing_or_another(monkeypatch, tmp_path):
    """The cluster's answer decides; a token in a file counts as Ray has it."""
    with serve(lambda token: None if token == "Bearer right" else "UNAUTHENTICATED") as address:
        assert "asks for a token: set RAY_AUTH_MODE=token" in str(explain_unreachable(address))
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        assert "there is no token: set RAY_AUTH_TOKEN" in str(explain_unreachable(address))
        monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
        assert "does not take the token" in str(explain_unreachable(address))
        monkeypatch.setenv("RAY_AUTH_TOKEN", "")
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("right\n")
        assert explain_unreachable(address) is None


@needs_openssl
def test_tls_on_one_side_alone(monkeypatch, tmp_path):
    """Both sides are told apart."""
    files = make_certificate(tmp_path, "own")
    with serve(lambda token: None, files) as address:
        assert "takes TLS alone: set RAY_USE_TLS=1" in str(explain_unreachable(address))
        use(monkeypatch, files)
        assert explain_unreachable(address) is None
    with serve(lambda token: None) as address:
        assert "the cluster does not use TLS" in str(explain_unreachable(address))


@needs_openssl
def test_certificates_that_do_not_fit(monkeypatch, tmp_path):
    """A stranger's, one that is not there, a file that holds none, and one with the key of another."""
    own, other = make_certificate(tmp_path, "own"), make_certificate(tmp_path, "other")
    with serve(lambda token: None, own) as address:
        use(monkeypatch, other)
        assert "TLS fails (CERTIFICATE_VERIFY_FAILED" in str(explain_unreachable(address))
        use(monkeypatch, (*own[:2], str(tmp_path / "none")))
        assert "RAY_TLS_CA_CERT names" in str(explain_unreachable(address))
        use(monkeypatch, (*own[:2], own[1]))
        assert f"RAY_TLS_CA_CERT names {own[1]}, which holds no certificate" in str(explain_unreachable(address))
        use(monkeypatch, (own[0], other[1], own[2]))
        assert "no certificate with its key" in str(explain_unreachable(address))
        monkeypatch.delenv("RAY_TLS_SERVER_KEY")
        assert "RAY_TLS_SERVER_KEY is not" in str(explain_unreachable(address))


def use(monkeypatch, files):
    """Has this side use TLS."""
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name, file in zip(TLS_FILES, files, strict=True):
        monkeypatch.setenv(name, file)


def make_certificate(folder, name):
    """A certificate that is its own authority, and its key, as TLS_FILES lists them."""
    key, certificate = str(folder / f"{name}.key"), str(folder / f"{name}.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key, certificate


@contextlib.contextmanager
def serve(answer, files=None):
    """The address of a gRPC server that answers every request with an error of that name, None: it takes it."""
    import grpc

    def reply(request, context):
        code = answer(dict(context.invocation_metadata()).get("authorization"))
        if code is not None:
            context.abort(getattr(grpc.StatusCode, code), "no")
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(reply)

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Handler()])
    if files is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key, authority = (Path(file).read_bytes() for file in files)
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class AskedError(Exception):
    """As gRPC's own errors."""

    def __init__(self, code, details):
        super().__init__(code)
        self.code, self.details = lambda: SimpleNamespace(name=code), lambda: details


class FakeGrpc:
    """gRPC whose server answers with an error of that name (None: it takes the request); what it was asked is kept."""

    RpcError = AskedError

    def __init__(self, code, details=""):
        self.answer, self.asked = (code, details), []

    @contextlib.contextmanager
    def insecure_channel(self, target):
        yield SimpleNamespace(unary_unary=lambda request: lambda *words, **options: self.ask(target, request, options))

    def ask(self, target, request, options):
        self.asked.append((target, request, options))
        if self.answer[0] is not None:
            raise AskedError(*self.answer)


def ask(monkeypatch, address, code, details="", speaks_tls=False):
    """Why an address is not reached whose server answers so, and what it was asked."""
    grpc = FakeGrpc(code, details)
    monkeypatch.setattr(reach, "_check_port", lambda host, port: None)
    monkeypatch.setattr(reach, "_speaks_tls", lambda host, port: speaks_tls)
    monkeypatch.setattr(reach.importlib, "import_module", lambda name: grpc)
    return explain_unreachable(address), grpc.asked


def test_one_request_is_made_within_ten_seconds(monkeypatch):
    """The client's server and a cluster's head take another; an address of IPv6 stands in brackets, and gRPC itself
    prints nothing."""
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    for address, target, request in (
        ("ray://h:1", "h:1", "RayletDriver/ClusterInfo"),
        ("[::1]:2", "[::1]:2", "NodeInfoGcsService/GetClusterId"),
    ):
        problem, ((to, asked, options),) = ask(monkeypatch, address, None)
        assert (problem, to, asked.endswith(request)) == (None, target, True)
        assert options == {"timeout": 10.0, "metadata": ()}
    assert reach.os.environ.pop("GRPC_VERBOSITY") == "NONE"


def test_what_grpc_says_is_cut(monkeypatch):
    """200 letters of it; an answer that tells neither of tokens nor of ports is an answer."""
    problem, _ = ask(monkeypatch, "h:1", "UNAVAILABLE", "x" * 300)
    assert problem == f"h:1 does not answer as a Ray cluster does ({'x' * 200})"
    assert "does not answer" in str(ask(monkeypatch, "h:1", "DEADLINE_EXCEEDED", "late")[0])
    assert ask(monkeypatch, "h:1", "INTERNAL")[0] is None
    monkeypatch.setenv("RAY_USE_TLS", "true")
    monkeypatch.setattr(reach, "_check_tls_files", lambda: None)
    monkeypatch.setattr(reach, "_open_channel", lambda grpc, target: grpc.insecure_channel(target))
    said = f"Handshake: OPENSSL_internal:{'y' * 300} ;"
    assert str(ask(monkeypatch, "h:1", "UNAVAILABLE", said, speaks_tls=True)[0]).startswith(
        f"TLS fails ({'y' * 200}): "
    )


def test_a_machine_without_grpc_asks_nothing(monkeypatch):
    """Ray says then what it meets."""
    monkeypatch.setattr(reach, "_check_port", lambda host, port: None)
    monkeypatch.setattr(reach.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(reach.importlib, "import_module", pytest.fail)
    assert explain_unreachable("h:1") is None


def test_a_port_has_ten_seconds_to_answer(monkeypatch):
    """So has a greeting of TLS."""
    asked = []

    def connect(address, timeout):
        asked.append((address, timeout))
        raise TimeoutError("timed out")

    monkeypatch.setattr(reach.socket, "create_connection", connect)
    assert "nothing answers at h:1 (timed out)" in str(explain_unreachable("h:1"))
    assert not reach._speaks_tls("h", 1)
    assert asked == [(("h", 1), 10.0)] * 2


def test_a_token_lies_where_ray_looks_for_it(monkeypatch, tmp_path):
    """In a file that a variable names before the one at home; a blank one is none."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("at home\n")
    (tmp_path / "mine").write_text(" named\n")
    assert reach.read_token() == "at home"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "mine"))
    assert reach.read_token() == "named"
    (tmp_path / "mine").write_text(" \n")
    assert reach.read_token() is None
