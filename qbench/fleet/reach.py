"""Whether a cluster can be reached, by what Ray's own variables say of TLS and tokens; in one message where it cannot.

It is asked before Ray connects, since Ray tries for minutes, or for ever, and prints each try.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import ssl
from pathlib import Path
from typing import Any

from qbench.files import regular_file

CLIENT = "ray://"
TLS_FILES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_SECONDS = 10.0
# Requests that an empty message is a whole one of: of Ray's client server, and of the control store of a cluster.
_ASK_CLIENT, _ASK_CLUSTER = "/ray.rpc.RayletDriver/ClusterInfo", "/ray.rpc.NodeInfoGcsService/GetClusterId"
_SET_TLS = f"set RAY_USE_TLS=1, {', '.join(TLS_FILES)} here as on its nodes"
_SET_TOKEN = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) here as on its nodes"


def explain_unreachable(address: str) -> str | None:
    """Why there is no connection to ``HOST:PORT`` or ``ray://HOST:PORT``, and what to do; None where there is one."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    host = host.strip("[]")
    problem = _check_tls_files() or _check_token() or _check_port(host, int(port))
    return problem or _check_answer(address, host, int(port))


def _uses_tls() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def _check_tls_files() -> str | None:
    """What is wrong with the files of TLS, where it is asked for."""
    if not _uses_tls():
        return None
    for name in TLS_FILES:
        if not os.environ.get(name):
            return f"RAY_USE_TLS is set, but {name} is not: it names a file in PEM format"
        try:
            regular_file.read_bytes(Path(os.environ[name]))
        except OSError as error:
            return f"{name} names {os.environ[name]}: {error.strerror}"
    certificate, key, authority = (os.environ[name] for name in TLS_FILES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, ValueError) as error:
        return f"RAY_TLS_SERVER_CERT and RAY_TLS_SERVER_KEY are no certificate with its key: {error}"
    try:
        context.load_verify_locations(authority)
    except (ssl.SSLError, ValueError) as error:
        return f"RAY_TLS_CA_CERT names {authority}, which holds no certificate: {error}"
    return None


def read_token() -> str | None:
    """The token that Ray would send, from where Ray looks for it; None where there is none."""
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        return regular_file.read_text(Path(named or Path.home() / ".ray" / "auth_token")).strip() or None
    except (OSError, UnicodeDecodeError, RuntimeError):  # the last: there is no home
        return None


def _asks_for_token() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def _check_token() -> str | None:
    if not _asks_for_token() or read_token() is not None:
        return None
    return (
        "RAY_AUTH_MODE=token, but there is no token: set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to a file that can be "
        "read, to the token of the cluster"
    )


def _check_port(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        cause = getattr(error, "strerror", None) or error
        return f"nothing answers at {host}:{port} ({cause}): is the cluster started, and the port open to this machine?"
    return None


def _check_answer(address: str, host: str, port: int) -> str | None:
    """What the answer to one request says; None also where gRPC is not installed to ask it."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would print each failure itself
    if importlib.util.find_spec("grpc") is None:
        return None
    grpc = importlib.import_module("grpc")
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    token = read_token() if _asks_for_token() else None
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    with _open_channel(grpc, target) as channel:
        ask = channel.unary_unary(_ASK_CLIENT if address.startswith(CLIENT) else _ASK_CLUSTER)
        try:
            ask(b"", timeout=_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            code, details = error.code().name, str(error.details())
        else:
            return None
    if code == "UNAUTHENTICATED":
        return _explain_token(token)
    if code == "UNIMPLEMENTED":
        return _explain_port(address, target)
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return _explain_silence(host, port, details)
    return None  # it answers, if not to this


def _open_channel(grpc: Any, target: str) -> Any:
    if not _uses_tls():
        return grpc.insecure_channel(target)
    certificate, key, authority = (regular_file.read_bytes(Path(os.environ[name])) for name in TLS_FILES)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(authority, key, certificate))


def _explain_token(sent: str | None) -> str:
    if sent is None:
        return f"the cluster asks for a token: {_SET_TOKEN}"
    return f"the cluster does not take the token of RAY_AUTH_TOKEN: {_SET_TOKEN}"


def _explain_port(address: str, target: str) -> str:
    if address.startswith(CLIENT):
        return f"{target} is no port of Ray's client server, which is 10001 unless `ray start` was told another"
    return f"{target} is no port of a cluster's head, which is 6379 unless `ray start` was told another"


def _explain_silence(host: str, port: int, details: str) -> str:
    """Why a port that is open does not answer: TLS on one side alone, certificates that do not fit, or no Ray."""
    theirs = _speaks_tls(host, port)
    if theirs and not _uses_tls():
        return f"the cluster takes TLS alone: {_SET_TLS}"
    if _uses_tls() and not theirs:
        return "RAY_USE_TLS is set here, but the cluster does not use TLS: unset it, or start the cluster with it"
    if theirs:
        cause = details.rpartition("OPENSSL_internal:")[2].strip(" ;")[:200]
        return f"TLS fails ({cause}): both certificates must be signed by RAY_TLS_CA_CERT, and that of {host} name it"
    return f"{host}:{port} does not answer as a Ray cluster does ({details[:200]})"


def _speaks_tls(host: str, port: int) -> bool:
    """Whether a port answers a TLS greeting; nothing is sent over that connection, so nobody's name is asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False
