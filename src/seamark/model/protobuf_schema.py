"""Protobuf schemas of a registry as descriptors: compiled by Google's own `protoc`, of the package
`grpcio-tools`, so that every text means what it means to its producers.

`sources/protobuf.py` reads values by them; `sinks/kafka/schema_registry.py` compares versions.
"""

import base64
import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.model.errors import OperationFailedError
from seamark.model.packages import load_driver
from seamark.model.schema_registry import SchemaText

_MAIN = "seamark_value.proto"
_TIMEOUT_S = 60
_PROTOC = """
import sys
sys.path.append(sys.argv.pop(1))
from grpc_tools import protoc
sys.exit(protoc.main(sys.argv))
"""
_WARNING = re.compile(r"warning:|^WARNING|^W\d{4} ")


@functools.lru_cache(maxsize=128)
def message_of(schema: SchemaText) -> Any:
    """Return the descriptor of a schema's first message, in a pool of its own. Raises ValueError,
    in one line, for text that is no schema or has no message, OperationFailedError if the compiler
    does not run, and MissingDependencyError."""
    pb = _module("google.protobuf.descriptor_pb2")
    given = (*schema.references, (_MAIN, schema.text))
    files = {name: _serialized(text, pb) for name, text in given}
    made = {name: file for name, file in files.items() if file is not None}
    texts = {name: text for name, text in schema.references if name not in made}
    needed = {name for file in made.values() for name in file.dependency} - made.keys()
    imports = "".join(f'import "{name}";\n' for name in sorted(needed))
    texts[_MAIN] = f'syntax = "proto3";\n{imports}' if _MAIN in made else schema.text
    compiled = [file for file in _compiled(texts, pb) if file.name not in made]
    pool = _module("google.protobuf.descriptor_pool").DescriptorPool()
    for name, file in made.items():
        file.name = name
    try:
        for file in (*compiled, *made.values()):  # each after those it needs
            descriptor = pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not file.message_type:
        raise ValueError("the schema has no message")
    return descriptor.message_types_by_name[file.message_type[0].name]


def _module(name: str) -> Any:
    return load_driver(name, "Protobuf values need protobuf and grpcio-tools", "protobuf")


def _serialized(text: str, pb: Any) -> Any:
    """Return the descriptor that Confluent's serializer for Python registers, in Base64, and some
    registries give as it is; None for the text of a schema."""
    if not text.strip():
        return None
    try:
        return pb.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except Exception:  # binascii's, or Protobuf's own DecodeError
        return None


def _compiled(texts: Mapping[str, str], pb: Any) -> Sequence[Any]:
    tools = Path(_module("grpc_tools").__file__).parent
    try:
        with tempfile.TemporaryDirectory(prefix="seamark-protoc-") as directory:
            root = Path(directory).resolve()
            for name, text in texts.items():
                file = (root / name).resolve()
                if not file.is_relative_to(root):
                    raise ValueError(f"a reference has the name {name!r}, which is no file's in it")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            # Isolated: a reference of a module's name in this directory is not to be imported.
            command = [sys.executable, "-I", "-S", "-c", _PROTOC, str(tools.parent), "-I."]
            command += [f"-I{tools / '_proto'}", "--include_imports", "--descriptor_set_out=out"]
            done = subprocess.run(
                [*command, _MAIN], cwd=root, capture_output=True, timeout=_TIMEOUT_S, check=False
            )
            compiled = (root / "out").read_bytes() if done.returncode == 0 else b""
    except (OSError, subprocess.SubprocessError) as error:  # no fault of the schema's
        raise OperationFailedError(f"protoc does not run: {error}; see the machine") from None
    said = done.stderr.decode(errors="replace").replace(_MAIN, "the schema")
    lines = [line for line in said.splitlines() if not _WARNING.search(line)]
    if done.returncode == 1:
        raise ValueError("; ".join(lines))
    if done.returncode:  # killed
        raise OperationFailedError(f"protoc ended with {done.returncode}: {'; '.join(lines)}")
    return list(pb.FileDescriptorSet.FromString(compiled).file)
