"""What a TorchScript archive says of itself, read as text: nothing is unpickled, compiled or run, without torch.

An archive is a zip file with the network's code as text beside the tensors. What `torch.save` writes looks alike, but
is a pickle, which runs code when it is read.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path

from qbench.errors import ModelError
from qbench.files import regular_file

MOST_BYTES = 1 << 27  # of code: networks have some hundred kilobytes
_PICKLED = b"\x80"  # how a pickle begins
_SAVE = "save it with torch.jit.script(model).save(path), or torch.jit.trace(model, example).save(path)"
_CALL = re.compile(r"\b(?:ops\.(\w+)|torch)\.(\w+)\(")
_NAMESPACES = ("quantized", "onednn", "quantized_decomposed", "torchao")
_PACKING = ("prepack", "unpack")  # the code of every packed weight holds those, also of kinds that are never called
_AT_RUN_TIME = ("_dynamic", "::quantized_lstm", "::quantized_gru")
_OF_ATEN = ("quantize_per", "quantized_lstm", "quantized_gru")


def list_operators(file: Path) -> tuple[str, ...]:
    """The operators of an archive that quantize or take int8, as ``quantized::conv2d``, in the order of its code; empty
    for a float network. Raises ``ModelError`` for what is no TorchScript archive, or damaged."""
    unique: dict[str, None] = {}
    for namespace, name in _CALL.findall(_read_code(file)):
        if namespace in ("", "aten"):
            if name.startswith(_OF_ATEN) or "fake_quant" in name:
                unique[f"aten::{name}"] = None
        elif namespace in _NAMESPACES and not any(word in name for word in _PACKING):
            unique[f"{namespace}::{name}"] = None
    return tuple(unique)


def find_range_at_run_time(operators: tuple[str, ...]) -> str | None:
    """The operator that chooses the range of an activation as it runs; None where all are fixed."""
    return next((name for name in operators if name.endswith(_AT_RUN_TIME)), None)


def is_simulation(operators: tuple[str, ...]) -> bool:
    """Whether they only round in float, as fake quantization does."""
    return bool(operators) and all("fake_quant" in name for name in operators)


def _read_code(file: Path) -> str:
    try:
        with regular_file.open_file(file) as stream:
            is_pickle = stream.peek(1)[:1] == _PICKLED
            with zipfile.ZipFile(stream) as archive:
                names = archive.namelist()
                if not any(name.endswith("/constants.pkl") for name in names):
                    raise ModelError(f"{file}: {_say_other(names)}")
                files = archive.infolist()
                code = [part for part in files if "/code/" in part.filename and part.filename.endswith(".py")]
                if sum(part.file_size for part in code) > MOST_BYTES:
                    raise ModelError(f"{file}: its code is larger than the {MOST_BYTES:,} bytes that are read")
                return "\n".join(archive.read(part).decode(errors="replace") for part in code)
    except zipfile.BadZipFile as error:
        kind = "a pickle, which runs code when it is read, so qbench does not open it" if is_pickle else str(error)
        raise ModelError(f"{file}: not a TorchScript archive: {kind}; {_SAVE}") from error
    except (OSError, ValueError, RuntimeError, EOFError, zlib.error) as error:  # RuntimeError: an encrypted one
        raise ModelError(f"{file}: cannot read this TorchScript archive: {error}") from error


def _say_other(names: list[str]) -> str:
    """What a zip file without TorchScript's constants is, and what to do."""
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        return (
            "this is what torch.save writes, no TorchScript: a pickle runs code when it is read, so qbench does not "
            f"open it; {_SAVE}"
        )
    if any("exported_program" in name or name.endswith("archive_format") for name in names):
        return f"this is what torch.export.save writes, no TorchScript; {_SAVE}, or export it to ONNX"
    return f"this zip file is no TorchScript archive; {_SAVE}"
