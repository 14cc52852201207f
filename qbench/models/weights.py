"""Weights: read from a user's file without running code, saved as safetensors, and digested."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import re
import struct
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from qbench import registry, user_code
from qbench.errors import ModelError, first_names, out_of_memory
from qbench.files import atomic, regular_file
from qbench.models import trainer
from qbench.models.base import ModelReference, Network, OwnInt8
from qbench.quant.artifacts import onnx_check, openvino_ir

if TYPE_CHECKING:
    from torch import Tensor, nn

# Where training scripts put the state dict beside the optimizer's.
NESTED = ("state_dict", "model_state_dict", "model", "net", "weights")
# What DataParallel and torch.compile put before every name.
WRAPPERS = ("module.", "_orig_mod.")
SHOWN = 5
# What zipfile and torch's unpickler raise for a damaged file, whose bytes decide how far each of them gets.
DAMAGE = (
    *(RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError),
    *(OverflowError, struct.error, zipfile.BadZipFile),
)
BLOCK = 1 << 20


def save_weights(module: nn.Module, path: Path) -> None:
    """Writes parameters and buffers as safetensors, atomically; a tensor with two names is stored once."""
    from safetensors.torch import save_model

    with atomic.replace_file(path) as part:
        save_model(module, str(part))


def load_weights(module: nn.Module, path: Path) -> None:
    """Puts the weights of a ``.safetensors`` or state-dict ``.pt``/``.pth`` file into the module.

    Raises ``ModelError`` that names missing, unexpected and misshapen weights, or says how to convert the file.
    """
    state = read_state(path)
    expected = module.state_dict()
    missing = [name for name in expected if name not in state and not _derived(name, expected, state)]
    unexpected = [name for name in state if name not in expected]
    misshapen = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in expected
        if name in state and state[name].shape != expected[name].shape
    ]
    wrong = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
    if missing or unexpected or misshapen:
        text = "; ".join(f"{len(names)} {kind}: {first_names(names, SHOWN)}" for kind, names in wrong.items() if names)
        raise ModelError(f"{path}: the weights do not fit the model: {text}")
    module.load_state_dict(_with_versions(state, expected), strict=False)


def _with_versions(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The state with the versions of modules that torch keeps beside it: the file's own, else those of the network,
    whose names and shapes it has. Some networks refuse a state without (torchvision's MNASNet)."""
    versioned: Any = OrderedDict(state)
    versioned._metadata = _versions_of(state) or getattr(expected, "_metadata", None)
    return cast("Mapping[str, Tensor]", versioned)


def read_state(path: Path) -> Mapping[str, Tensor]:
    """The state dict in a file; a pickle that could run code is refused with the way to convert it."""
    if (why := regular_file.explain_unusable(path)) is not None:
        raise ModelError(f"{path}: no such weights file ({why})")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        return _state_in(_read_torch(path), path)
    raise ModelError(f"{path}: weights must be .safetensors, or a state dict in .pt or .pth")


def weights_digest(network: Network) -> str:
    """The sha256, as 64 hex digits, of names, dtypes, shapes and bytes of all weights, or of the network's file
    (an ONNX file with its external data) where it has one."""
    sha = hashlib.sha256()
    if network.path is not None:
        for file in (network.path, *(_external_files(network.path) if network.kind == "onnx" else ())):
            _add_file(sha, file)
        return sha.hexdigest()
    import torch

    for name, tensor in sorted(network.module.state_dict().items()):
        sha.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        sha.update(flat.view(torch.uint8).numpy().data)
    return sha.hexdigest()


def int8_digest(own: OwnInt8) -> str:
    """The sha256 of an int8 file, of ONNX with its external data; of the file alone where it is not whole."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    file = own.path
    try:
        if own.format == "torchscript":
            return weights_digest(Network(kind="torchscript", path=file))
        if own.format == "openvino":
            sha = hashlib.sha256()
            for part in (file, openvino_ir.find_weights(file)):
                _add_file(sha, part)
            return sha.hexdigest()
        return weights_digest(Network(kind="onnx", path=file))
    except (DecodeError, FileNotFoundError):  # told where it is built
        sha = hashlib.sha256()
        if file.is_file():
            _add_file(sha, file)
        return sha.hexdigest()


def code_digest(reference: ModelReference) -> str | None:
    """The sha256 of the Python code that makes (and for a built-in trains) the network; None where it is a file.

    Imports no torch. Call it after the model was loaded, so that everything it imported counts.
    """
    if reference.source is None:
        build = registry.load("model", reference.name).build
        if build is None:
            return None
        files = (inspect.getfile(getattr(build, "func", build)), inspect.getfile(trainer))  # func: of a partial
        return hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in files)).hexdigest()
    if reference.source == "python" and reference.path is not None:
        return user_code.digest(reference.path)
    return None


def _read_safetensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with regular_file.open_file(path) as stream:
            opened = Path(f"/dev/fd/{stream.fileno()}")  # the very file: load_file takes a name alone
            state: Mapping[str, Tensor] = load_file(opened if opened.exists() else path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a safetensors file, or damaged: {error}") from error
    return state


def _read_torch(path: Path) -> Any:
    import torch

    if _is_torchscript(path):
        raise ModelError(f"{path}: this is a TorchScript model, not weights; use it as source: {{torchscript: file}}")
    try:
        with warnings.catch_warnings():
            # A remark on how the pickle was written; whether it can be read shows in the next moment.
            warnings.filterwarnings("ignore", message="Detected pickle protocol", category=UserWarning)
            with regular_file.open_file(path) as stream:
                return torch.load(stream, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path}: this pickle holds {_refused_in(error)} and could run code, so qbench does not load it. "
            "Convert it once, where the model was made: torch.save(model.state_dict(), 'weights.pt'), or "
            "safetensors.torch.save_model(model, 'weights.safetensors')"
        ) from error
    except DAMAGE as error:
        if out_of_memory(error):
            raise
        cause = str(error).partition("\n")[0]
        raise ModelError(f"{path}: cannot read these weights, the file is damaged: {cause}") from error


def _refused_in(error: pickle.UnpicklingError) -> str:
    """What torch refused, where its message names it; the rest of the message is advice to trust the file."""
    refused = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"more than tensors ({refused[1]})" if refused else "more than tensors, or is damaged,"


def _is_torchscript(path: Path) -> bool:
    try:
        with regular_file.open_file(path) as stream, zipfile.ZipFile(stream) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except DAMAGE:  # no archive, or a damaged one: reading the weights says what is wrong
        return False


def _state_in(loaded: Any, path: Path) -> Mapping[str, Tensor]:
    """The state dict itself, out of a checkpoint and without the names of wrappers."""
    import torch

    for key in NESTED:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not loaded:
        raise ModelError(f"{path}: expected a state dict (name -> tensor), found {type(loaded).__name__}")
    no_tensors = [str(name) for name, value in loaded.items() if not isinstance(value, torch.Tensor)]
    if no_tensors:
        raise ModelError(
            f"{path}: expected a state dict (name -> tensor), but these are no tensors: "
            f"{first_names(no_tensors, SHOWN)}; save model.state_dict() alone, or under the key 'state_dict'"
        )
    state: Any = OrderedDict((str(name), value) for name, value in loaded.items())
    versions = _versions_of(loaded)
    for wrapper in WRAPPERS:
        if all(name.startswith(wrapper) for name in state):
            state = OrderedDict((name.removeprefix(wrapper), value) for name, value in state.items())
            versions = {f"{name}.".removeprefix(wrapper).rstrip("."): version for name, version in versions.items()}
    state._metadata = versions
    return cast("Mapping[str, Tensor]", state)


def _versions_of(state: Any) -> dict[str, dict[str, int]]:
    """The versions of modules that a state dict of torch has beside it; empty where it has none that are such."""
    kept = getattr(state, "_metadata", None)
    if not isinstance(kept, Mapping) or not all(isinstance(facts, Mapping) for facts in kept.values()):
        return {}
    return {
        str(name): {"version": facts["version"]} for name, facts in kept.items() if type(facts.get("version")) is int
    }


def _derived(name: str, own: Mapping[str, Tensor], state: Mapping[str, Any]) -> bool:
    """Whether a name needs no entry: it shares its memory with one that has, or is BatchNorm's counter, which
    old files lack and inference does not use."""
    shared = any(
        other in state and own[other].data_ptr() == own[name].data_ptr() and own[other].shape == own[name].shape
        for other in own
        if other != name
    )
    return name.endswith("num_batches_tracked") or (shared and own[name].numel() > 0)


def _external_files(path: Path) -> list[Path]:
    import onnx
    from onnx.external_data_helper import uses_external_data

    model = onnx.ModelProto.FromString(regular_file.read_bytes(path, onnx_check.MOST_BYTES))
    tensors = onnx.external_data_helper._get_all_tensors(model)
    places = {
        entry.value
        for tensor in tensors
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [path.parent / place for place in sorted(places)]


def _add_file(sha: hashlib._Hash, file: Path) -> None:
    with regular_file.open_file(file) as stream:
        while block := stream.read(BLOCK):
            sha.update(block)
