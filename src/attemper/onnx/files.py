"""ONNX files: checked by onnx itself, tensors beside the model left where they are, written whole or not at all."""

from __future__ import annotations

import filecmp
import functools
import math
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from attemper._json import atomic
from attemper._paths import checked_file, opened
from attemper.errors import FileError, InputError, InputTypeError, require

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = [
    "External",
    "check_target",
    "checked",
    "external_files",
    "read_model",
    "skeleton",
    "tensors_of",
    "walk",
    "write_model",
]

MAX_BYTES = (1 << 31) - 1  # what a protobuf may be; larger models keep their tensors in files beside it
MAX_EXPANDED = 200_000  # nodes more than the functions have, if every call of a function is written out
SMALL = 1024  # elements; what shape inference may need to see, such as the target of a Reshape
PACKED = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}  # bits of types that share bytes
External = Literal["copy", "refer"]


def read_model(given: Any) -> tuple[Any, Path | None]:
    """Return a copy of the model, its external tensors unread, and the folder that they are in."""
    if isinstance(given, onnx.ModelProto):
        model, folder, where = onnx.ModelProto(), None, "the model"
        model.CopyFrom(given)
    elif isinstance(given, str | os.PathLike):
        path = Path(given)
        model, folder, where = _parsed(path), path.parent, str(path)
    else:
        raise InputTypeError(f"expected the path of an ONNX file or an onnx.ModelProto, got {type(given).__name__}")
    external = [tensor for tensor in tensors_of(model) if _is_external(tensor)]
    if external and folder is None:
        raise InputError(
            f"the tensor {external[0].name!r} is in a file next to the model. Pass the model's path, not the ModelProto"
        )
    _check_text(model, where)
    _check_types(model, where)
    for tensor in external:
        _info(tensor, where)
    checked(given if folder is None else str(given), where)
    for tensor in external:
        assert folder is not None
        _check_external(tensor, folder, where)
    _check_functions(model, where)
    return model, folder


def _parsed(path: Path) -> Any:
    size = checked_file(path, one=True)
    if size > MAX_BYTES:
        raise FileError(f"{path}: {size} bytes, but an ONNX file has at most {MAX_BYTES}: it is none, or damaged")
    with opened(path) as stream:
        data = stream.read()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # of protobuf, which has several
        raise FileError(f"{path}: not an ONNX model, or a truncated one") from None
    if not model.HasField("graph") or not model.opset_import:
        raise FileError(f"{path}: not an ONNX model, or a truncated one: it has no graph or no opset")
    return model


def checked(model: Any, where: str) -> None:
    """Let onnx's checker see a model, or the file of one: structure, types, sizes, where external tensors are."""
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the checker's own, and protobuf's
        said = " ".join(str(error).split())
        raise FileError(f"{where}: not a valid ONNX model: {said[:300]}") from None


def skeleton(model: Any) -> Any:
    """Return the model with its large tensors as inputs: quick to copy, and nothing beside it is opened."""
    bare = onnx.ModelProto()
    large = [t for t in model.graph.initializer if _is_external(t) or math.prod(t.dims) > SMALL]
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
    return bool(onnx.external_data_helper.uses_external_data(tensor))


def _check_text(model: Any, where: str) -> None:
    """Refuse text that is no UTF-8, which protobuf lets through as bytes."""
    graph = model.graph
    names = [name for p in model.metadata_props for name in (p.key, p.value)] + [o.domain for o in model.opset_import]
    names += [i.name for i in (*graph.initializer, *graph.input, *graph.output, *graph.value_info)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute)]
    try:
        skeleton(model)
    except UnicodeDecodeError:
        names.append(b"")
    if any(isinstance(name, bytes) for name in names):
        raise FileError(f"{where}: a name in it is no text: the file is damaged")


def _check_types(model: Any, where: str) -> None:
    """Refuse types and attributes that mean nothing, which onnx's checker lets through."""
    graph, known = model.graph, {*onnx.TensorProto.DataType.values()}
    open_types = [(i.name, i.type.tensor_type.elem_type) for i in (*graph.output, *graph.value_info)]
    types = [(i.name, i.type.tensor_type.elem_type) for i in graph.input if i.type.HasField("tensor_type")]
    types += [(t.name, t.data_type) for t in tensors_of(model)]
    wrong = [t for t in open_types if t[1] not in known] + [t for t in types if t[1] not in known - {0}]
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
    """Refuse functions that call each other too often for shape inference, which looks at every call.

    onnx's checker has refused recursion, and more than 100 functions deep.
    """

    def key(domain: str, *name: str) -> tuple[str, ...]:
        return ("" if domain == "ai.onnx" else domain, *name)

    functions = {key(f.domain, f.name, f.overload): list(walk(f)) for f in model.functions}

    def calls(nodes: Iterable[Any]) -> Counter[tuple[str, ...]]:
        return Counter(k for n in nodes if (k := key(n.domain, n.op_type, n.overload)) in functions)

    @functools.cache
    def size(name: tuple[str, ...]) -> int:
        # What a node costs grows with its size; most have less than a kilobyte.
        own: int = sum(1 + node.ByteSize() // 1024 for node in functions[name])
        return own + sum(n * size(callee) for callee, n in calls(functions[name]).items())

    expanded = sum(n * size(name) for name, n in calls(walk(model.graph)).items())
    most = MAX_EXPANDED + sum(len(nodes) for nodes in functions.values())
    if expanded > most:
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


def _info(tensor: Any, where: str) -> Any:
    """Return where an external tensor is, as onnx reads it; refuse what that lets through."""
    what = f"{where}: the tensor {tensor.name!r}"
    keys = [e.key for e in tensor.external_data]
    for key in keys:
        if keys.count(key) > 1:  # every reader may take another one
            raise FileError(f"{what} has the key {key!r} more than once; expected it once")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of keys that are ignored
            info = onnx.external_data_helper.ExternalDataInfo(tensor)
    except ValueError as error:
        raise FileError(f"{what}: {error}") from None
    if any(part.startswith(".") for part in PurePosixPath(info.location.replace("\\", "/")).parts if part != ".."):
        # settings and keys of a person, such as .ssh/config
        raise FileError(f"{what} is in {info.location!r}, a hidden file or folder; that is refused. Rename it.")
    return info


def _check_external(tensor: Any, folder: Path, where: str) -> None:
    """Refuse a tensor that is larger than its place in the file, before anything allocates that."""
    info = _info(tensor, where)
    # onnx reads a name up to a NUL, takes sub/.. for nothing even where sub is a link, and does not follow links in
    # the folder of a model whose path is relative.
    parts = PurePosixPath(info.location.replace("\\", "/")).parts
    inside = "\0" not in info.location and ".." not in parts
    if not inside or not (folder / info.location).resolve().is_relative_to(folder.resolve()):
        raise FileError(
            f"{where}: the tensor {tensor.name!r} is in {info.location!r}; expected a file in the model's folder"
        )
    size, offset = (folder / info.location).stat().st_size, info.offset or 0
    length = size - offset if info.length is None else info.length
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    bits = PACKED.get(kind) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    fits = math.prod(tensor.dims) * bits <= 8 * length + 7
    if not fits or min(tensor.dims, default=0) < 0 or not offset <= offset + length <= size:
        raise FileError(
            f"{where}: the tensor {tensor.name!r} is not in {length} bytes at {offset} of {info.location}, which has "
            f"{size}: the file is damaged"
        )


def external_files(model: Any) -> list[str]:
    """Names of the files beside the model that hold its tensors."""
    return list({_info(t, "the model").location: None for t in tensors_of(model) if _is_external(t)})


def check_target(model: Any, path: Path, folder: Path | None) -> None:
    """Refuse to write a model over tensors of its own, where they are or where they would be copied to."""
    for name in external_files(model):
        for file in {(folder or path.parent) / name, path.parent / name}:
            one, other = (Path(str(p.resolve()).casefold()) for p in (path, file))
            if one == other or one in other.parents or _same(path, file):
                raise FileError(
                    f"{path}: {name!r} next to the model holds its tensors, which would be overwritten; choose another"
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
                f"write it there, or copy them: external={'copy'!r}",
                param="external",
            )
        if external == "refer":
            _relocate(model, folder.resolve().relative_to(path.parent.resolve()))
        else:
            pairs = [(folder / name, path.parent / name) for name in files]
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
        for entry in tensor.external_data if _is_external(tensor) else ():
            if entry.key == "location":
                entry.value = (to / entry.value).as_posix()


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
