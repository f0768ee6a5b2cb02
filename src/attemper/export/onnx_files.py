"""ONNX files: read without trust, tensors beside the model left where they are, written whole or not at all."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from attemper.documents import atomic
from attemper.errors import FileError, InputError, InputTypeError, require, setting

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = [
    "External",
    "brief",
    "check_target",
    "checked",
    "count",
    "external_files",
    "read_model",
    "skeleton",
    "tensors_of",
    "walk",
    "write_model",
]

MAX_BYTES = (1 << 31) - 1  # what a protobuf may be; larger models keep their tensors in files beside it
MAX_EXTERNAL_FILES = 10_000
MAX_RANK = 64  # of a tensor; more is no network, and slow to look at
MAX_COUNT = 1 << 63
MAX_EXPANDED = 200_000  # nodes more than the functions have, if every call of a function is written out
MAX_DEPTH = 100  # of functions that call each other
SMALL = 1024  # elements; what shape inference may need to see, such as the target of a Reshape
External = Literal["copy", "refer"]


def count(dims: Iterable[int]) -> int:
    """Return the number of elements; 2^63 for that and more, without multiplying on."""
    dims = list(dims)
    if 0 in dims:
        return 0
    product = 1
    for d in dims:
        product *= d
        if product >= MAX_COUNT:
            return MAX_COUNT
    return product


def brief(dims: Iterable[int]) -> str:
    """Return dimensions as text, the first of them if there are many."""
    dims = list(dims)
    more = f", … ({len(dims)} in all)" if len(dims) > 8 else ""
    return f"[{', '.join(map(str, dims[:8]))}{more}]"


def read_model(given: Any) -> tuple[Any, Path | None]:
    """Return a copy of the model, its external tensors unread, and the folder that they are in."""
    if isinstance(given, onnx.ModelProto):
        model, folder, where = onnx.ModelProto(), None, "the model"
        model.CopyFrom(given)
    elif isinstance(given, str | os.PathLike):
        path = Path(given)
        model, folder, where = _parsed(path), path.parent, str(path)
    else:
        raise InputTypeError(f"{type(given).__name__} came; expected the path of an ONNX file, or an onnx.ModelProto")
    _check_text(model, where)
    _check_functions(model, where)
    _check_types(model.graph, where)
    _check_tensors(model, folder, where)
    checked(model, where)
    return model, folder


def _parsed(path: Path) -> Any:
    try:
        if not path.is_file():
            raise FileError(f"{path}: there is no such file" if not path.exists() else f"{path}: not a file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise FileError(f"{path}: {size} bytes, but an ONNX file has at most {MAX_BYTES}: it is none, or damaged")
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except FileError:
        raise
    except ValueError as error:  # a NUL in the name
        raise FileError(f"{str(path)!r}: cannot be read: {error}") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # of protobuf, which has several
        raise FileError(f"{path}: not an ONNX model, or a truncated one") from None
    if not model.HasField("graph") or not model.opset_import:
        raise FileError(f"{path}: not an ONNX model, or a truncated one: it has no graph or no opset")
    return model


def checked(model: Any, where: str) -> None:
    """Let onnx's checker see the model, without its weights: structure, order, names, types of attributes."""
    try:
        onnx.checker.check_model(skeleton(model))
    except Exception as error:  # the checker's own, and protobuf's
        said = " ".join(str(error).split())
        raise FileError(f"{where}: not a valid ONNX model: {said[:300]}") from None


def skeleton(model: Any) -> Any:
    """Return the model with its large tensors as inputs: quick to copy, and nothing beside it is opened."""
    bare = onnx.ModelProto()
    large = [t for t in model.graph.initializer if _is_external(t) or count(t.dims) > SMALL]
    names = {t.name for t in large}
    for field, value in model.ListFields():
        if field.name != "graph":
            _set_field(bare, field, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _set_field(bare.graph, field, value)
    bare.graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    there = {i.name for i in model.graph.input}
    bare.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in large if t.name not in there
    )
    return bare


def _set_field(message: Any, field: Any, value: Any) -> None:
    if hasattr(value, "CopyFrom") and hasattr(value, "DESCRIPTOR"):
        getattr(message, field.name).CopyFrom(value)
    elif hasattr(value, "append"):
        getattr(message, field.name).extend(value)
    else:
        setattr(message, field.name, value)


def tensors_of(model: Any) -> Iterator[Any]:
    """Every tensor of a model: initialisers, constants, those of subgraphs and functions."""
    graphs, nodes = [model.graph], [node for f in model.functions for node in f.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes.extend(graph.node)
            continue
        for a in nodes.pop().attribute:
            yield from ([a.t] if a.HasField("t") else [])
            yield from a.tensors
            graphs.extend([*([a.g] if a.HasField("g") else []), *a.graphs])


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _check_tensors(model: Any, folder: Path | None, where: str) -> None:
    """Refuse tensors that do not hold what their dimensions say, before anything allocates that."""
    for tensor in tensors_of(model):
        name = tensor.name or "without a name"
        if len(tensor.dims) > MAX_RANK:
            raise FileError(
                f"{where}: the tensor {name!r} has {len(tensor.dims)} dimensions; expected at most {MAX_RANK}"
            )
        if any(d < 0 for d in tensor.dims):
            raise FileError(f"{where}: the tensor {name!r} has dimensions {brief(tensor.dims)}")
        if tensor.data_type not in onnx.TensorProto.DataType.values() or tensor.data_type == 0:
            raise FileError(f"{where}: the tensor {name!r} has the unknown type {tensor.data_type}")
        if _is_external(tensor):
            if folder is None:
                raise InputError(
                    f"the tensor {name!r} is in a file beside the model; give the model's path, not the ModelProto"
                )
            _check_external(tensor, folder, where)
            continue
        says = count(tensor.dims)
        bits = _bits(tensor.data_type)
        if tensor.HasField("raw_data"):
            holds = len(tensor.raw_data) * 8 // bits if bits else says
        else:
            fields = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
            holds = max(len(getattr(tensor, f)) for f in fields) * (8 // bits if bits and bits < 8 else 1)
        if says > holds:
            many = f"{says}" if says < MAX_COUNT else "2^63 or more"
            raise FileError(
                f"{where}: the tensor {name!r} says {brief(tensor.dims)}, {many} numbers, but holds {holds}: "
                "the file is damaged"
            )


def _check_text(model: Any, where: str) -> None:
    """Refuse names that are no UTF-8, which older versions of onnx let through as bytes."""
    names = [name for p in model.metadata_props for name in (p.key, p.value)]
    names += [o.domain for o in model.opset_import] + [t.name for t in model.graph.initializer]
    names += [i.name for i in (*model.graph.input, *model.graph.output, *model.graph.value_info)]
    for node in model.graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [a.name for a in node.attribute]
    if any(isinstance(name, bytes) for name in names):
        raise FileError(f"{where}: a name in it is no text: the file is damaged")


def _check_types(graph: Any, where: str) -> None:
    """Refuse types and attributes that mean nothing, which onnx's checker lets through."""
    known = set(onnx.TensorProto.DataType.values())
    types = [(i.name, i.type.tensor_type.elem_type) for i in (*graph.output, *graph.value_info)]
    wrong = [(name, kind) for name, kind in types if kind not in known]
    types = [(i.name, i.type.tensor_type.elem_type) for i in graph.input if i.type.HasField("tensor_type")]
    wrong += [(name, kind) for name, kind in types if kind not in known - {0}]
    if wrong:
        raise FileError(f"{where}: the tensor {wrong[0][0]!r} has the unknown type {wrong[0][1]}")
    for node in walk(graph):
        for a in node.attribute:
            if a.ref_attr_name:
                raise FileError(
                    f"{where}: the attribute {a.name!r} of the {node.op_type} {node.name!r} refers to the attribute "
                    f"{a.ref_attr_name!r} of a function, but is in no function"
                )


def _check_functions(model: Any, where: str) -> None:
    """Refuse functions that call each other too often for shape inference, which looks at every call."""
    if not model.functions:
        return

    def key(domain: str, *name: str) -> tuple[str, ...]:
        return ("" if domain == "ai.onnx" else domain, *name)

    functions = {key(f.domain, f.name, f.overload): list(walk(f)) for f in model.functions}
    # What a node costs grows with its size; most have less than a kilobyte.
    own = {name: sum(1 + node.ByteSize() // 1024 for node in nodes) for name, nodes in functions.items()}
    most = MAX_EXPANDED + sum(own.values())

    def calls(nodes: Iterable[Any]) -> Counter[tuple[str, ...]]:
        return Counter(k for n in nodes if (k := key(n.domain, n.op_type, n.overload)) in functions)

    callees = {name: calls(nodes) for name, nodes in functions.items()}
    size = own
    for _ in range(MAX_DEPTH):
        before, size = size, {f: min(own[f] + sum(n * size[g] for g, n in callees[f].items()), most + 1) for f in own}
        if size == before:
            break
    else:
        raise FileError(f"{where}: its functions call each other more than {MAX_DEPTH} deep; expected no recursion")
    if sum(n * size[f] for f, n in calls(walk(model.graph)).items()) > most:
        raise FileError(
            f"{where}: with each call of a function written out the model has more than {most} nodes; expected no "
            "functions that call each other so often"
        )


def walk(graph: Any) -> Iterator[Any]:
    """Every node of a graph, or of a function, and of its subgraphs."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            yield node
            for a in node.attribute:
                graphs.extend([*([a.g] if a.HasField("g") else []), *a.graphs])


def _bits(data_type: int) -> int:
    """Size of a number; 0 where that is not told (text)."""
    name = onnx.TensorProto.DataType.Name(data_type)
    if name == "STRING":
        return 0
    if name in ("UINT4", "INT4", "FLOAT4E2M1"):
        return 4
    if name in ("UINT2", "INT2"):
        return 2
    return int(8 * onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize)


def _entries(tensor: Any, where: str) -> dict[str, str]:
    """Return where an external tensor is; of a key that came twice every reader may take another one."""
    entries: dict[str, str] = {}
    for e in tensor.external_data:
        if e.key in entries:
            raise FileError(f"{where}: the tensor {tensor.name!r} tells its {e.key!r} more than once; that is refused")
        entries[e.key] = e.value
    return entries


def _check_external(tensor: Any, folder: Path, where: str) -> None:
    entries = _entries(tensor, where)
    location = entries.get("location", "")
    path = _inside(folder, location, f"{where}: the tensor {tensor.name!r}")
    size = path.stat().st_size
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries["length"]) if entries.get("length") else size - offset
    except ValueError:
        raise FileError(f"{where}: the tensor {tensor.name!r} has an offset or length that is no number") from None
    if not 0 <= offset <= offset + length <= size:
        raise FileError(
            f"{where}: the tensor {tensor.name!r} is at {offset}…{offset + length} of {location}, which has {size} "
            "bytes"
        )
    if count(tensor.dims) * _bits(tensor.data_type) > 8 * length + 7:
        raise FileError(f"{where}: the tensor {tensor.name!r} says {brief(tensor.dims)}, but {location} has less of it")


def _inside(folder: Path, location: str, what: str) -> Path:
    """Return the path of an external file, which must be in the model's folder in truth, not by name only."""
    parts = PurePosixPath(location.replace("\\", "/")).parts
    outside = not location or ".." in parts or location.startswith("/") or PureWindowsPath(location).anchor
    if outside or "\0" in location:
        raise FileError(f"{what} is in {location!r}, outside the model's folder; that is refused")
    if any(part.startswith(".") for part in parts):  # settings and keys of a person, such as .ssh/config
        raise FileError(f"{what} is in {location!r}, a hidden file or folder; that is refused. Give it another name.")
    path = folder / location
    try:
        real = path.resolve(strict=True)
        inside = real.is_relative_to(folder.resolve(strict=True))
        is_file = real.is_file()
    except (OSError, RuntimeError):
        raise FileError(f"{what} is in {location!r}, which is not there beside the model") from None
    if not inside:
        raise FileError(
            f"{what} is in {location!r}, a link that leads outside the model's folder; that is refused. Put the file "
            "itself there."
        )
    if not is_file:
        raise FileError(f"{what} is in {location!r}, which is not a file")
    return path


def external_files(model: Any) -> list[str]:
    """Names of the files beside the model that hold its tensors."""
    found: dict[str, None] = {}
    for tensor in tensors_of(model):
        if _is_external(tensor):
            found.setdefault(_entries(tensor, "the model").get("location", ""))
    if len(found) > MAX_EXTERNAL_FILES:
        raise FileError(f"the tensors are in {len(found)} files; expected at most {MAX_EXTERNAL_FILES}")
    return list(found)


def check_target(model: Any, path: Path, folder: Path | None) -> None:
    """Refuse to write a model over tensors of its own, where they are or where they would be copied to."""
    for name in external_files(model):
        for file in {(folder or path.parent) / name, path.parent / name}:
            one, other = (Path(str(p.resolve()).casefold()) for p in (path, file))
            if one == other or one in other.parents or _same(path, file):
                raise FileError(
                    f"{path}: {name!r} beside the model holds its tensors, which would be lost; give another name"
                )


def write_model(model: Any, path: Path, folder: Path | None, external: External | None) -> None:
    """Write a model; files beside it are copied to its new folder, or referred to where they are.

    A name can only lead into the folder of the model or below it.
    """
    files = external_files(model)
    pairs: list[tuple[Path, Path]] = []
    if files and folder is not None and not _same(folder, path.parent):
        below = folder.resolve().is_relative_to(path.parent.resolve())
        if external == "refer" and not below:
            raise InputError(
                f"{path}: the tensors are in {folder}, and ONNX lets a model refer to files in its own folder alone; "
                f"write it there, or copy them: {setting('external', 'copy')}"
            )
        if external == "refer":
            _relocate(model, folder.resolve().relative_to(path.parent.resolve()))
        else:
            pairs = [(_inside(folder, name, "a tensor"), path.parent / name) for name in files]
    for _, target in pairs:
        if not target.resolve().is_relative_to(path.parent.resolve()):
            raise FileError(f"{target}: a link leads outside {path.parent}; that is refused. Give another folder.")
    new = [target for _, target in pairs if not target.exists()]
    try:
        for source, target in pairs:
            _copy(source, target)
        with atomic(path) as stream:
            stream.write(model.SerializeToString())
    except BaseException:
        for file in new:
            file.unlink(missing_ok=True)
        raise


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _relocate(model: Any, to: Path) -> None:
    for tensor in tensors_of(model):
        if _is_external(tensor):
            entries = _entries(tensor, "the model")
            entries["location"] = (to / entries["location"]).as_posix()
            del tensor.external_data[:]
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            return
        raise FileError(f"{target}: is there already, with other content; give another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as stream, atomic(target) as out:
            shutil.copyfileobj(stream, out, 1 << 22)
    except OSError as error:
        raise FileError(f"{target}: cannot be written: {error.strerror or error}") from None
