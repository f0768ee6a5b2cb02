"""Where the logits are in an ONNX graph: found where there is no doubt, else the candidates are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from attemper.errors import FileError, InputError, require
from attemper.maps import OutputKind

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["Graph", "Place", "find_place", "rename", "walk"]

MIN_OPSET = 17
SHAPERS = {"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}
LINEAR = {"Gemm", "MatMul", "Conv"}
ENDINGS: dict[str, OutputKind] = {"Softmax": "probs", "LogSoftmax": "log_probs", "Sigmoid": "probs"}
OF_CLASSES, OF_LABELS = ("Softmax", "LogSoftmax"), ("Sigmoid",)  # which exclude each other, or do not
FLOATS = {1: "FLOAT", 10: "FLOAT16", 11: "DOUBLE", 16: "BFLOAT16"}


@dataclass(frozen=True)
class Place:
    """Where a map goes: what it reads, and what it takes the place of."""

    reads: str  # tensor
    kind: OutputKind  # what the tensor that is replaced held
    ending: Any  # Softmax or LogSoftmax node that is replaced; None: the tensor itself is an output
    axis: int  # of the classes, from the end: −1 is the last
    rank: int | None
    elem_type: int
    n_classes: int | None
    holds: OutputKind  # what ``reads`` holds
    named: bool = False  # by the user

    @property
    def target(self) -> str:
        """Tensor whose name the calibrated one takes."""
        return self.reads if self.ending is None else str(self.ending.output[0])


class Graph:
    """A model's main graph, with who makes and who uses each tensor, and what is known of types."""

    def __init__(self, model: Any, where: str) -> None:
        self.model, self.graph, self.where = model, model.graph, where
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        if not self.opset:
            raise FileError(f"{where}: no opset of ONNX itself; such a model cannot be extended")
        self.outputs = [o.name for o in self.graph.output]
        self.maker = {name: node for node in self.graph.node for name in node.output if name}
        self.users: dict[str, list[Any]] = {}
        for node in self.graph.node:
            for name in dict.fromkeys(_reads(node)):
                self.users.setdefault(name, []).append(node)
        self.initialisers = {t.name: t for t in self.graph.initializer}
        self.types = self._types()

    def _types(self) -> dict[str, Any]:
        try:
            inferred = onnx.shape_inference.infer_shapes(self.model).graph
        except Exception:  # such as of a model over 2 GB: shapes are then those of the file
            inferred = self.graph
        infos = [*inferred.value_info, *inferred.input, *inferred.output]
        return {i.name: i.type.tensor_type for i in infos if i.type.HasField("tensor_type")}

    def shape(self, name: str) -> list[int | None] | None:
        """Return the dimensions of a tensor, None for those that are left open; None for an unknown rank."""
        t = self.types.get(name)
        if t is None or not t.HasField("shape"):
            return None
        return [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in t.shape.dim]

    def names(self) -> set[str]:
        """Every name that is taken, in subgraphs too."""
        found = {t.name for t in self.graph.initializer} | {i.name for i in self.graph.input}
        for node in walk(self.graph):
            found |= {node.name, *node.input, *node.output}
        return found

    def origin(self, name: str) -> Any:
        """Return the node that makes a tensor's numbers, looking through what only changes their shape."""
        node: Any = self.maker.get(name)
        while is_op(node, *SHAPERS) and node.input:
            node = self.maker.get(node.input[0])
        return node

    def layer_of(self, node: Any) -> Any:
        """Return the linear layer that a node is, or adds a bias to; None without, or where the weight comes first."""
        if is_op(node, "Add") and any(name in self.initialisers for name in node.input):
            node = next((self.maker[name] for name in node.input if name in self.maker), None)
        return node if is_op(node, *LINEAR) and node.input[0] not in self.initialisers else None


def is_op(node: Any, *kinds: str) -> bool:
    """Return whether a node is one of these operators, of ONNX itself: other domains reuse its names."""
    return node is not None and node.op_type in kinds and node.domain in ("", "ai.onnx")


def walk(graph: Any) -> Iterator[Any]:
    """Every node of a graph and of its subgraphs."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            yield node
            graphs.extend(_subgraphs(node))


def _subgraphs(node: Any) -> list[Any]:
    return [sub for a in node.attribute for sub in [*([a.g] if a.HasField("g") else []), *a.graphs]]


def _reads(node: Any) -> Iterator[str]:
    """Names that a node uses, those that its subgraphs take from outside among them."""
    yield from (name for name in node.input if name)
    for sub in _subgraphs(node):
        own = {name for inner in walk(sub) for name in inner.output} | {t.name for t in sub.initializer}
        used = [*(name for inner in walk(sub) for name in inner.input), *(o.name for o in sub.output)]
        yield from (name for name in used if name and name not in own)


def rename(graph: Any, old: str, new: str) -> None:
    """Give a tensor another name, everywhere but in the graph's outputs."""
    for node in walk(graph):
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new
        for sub in _subgraphs(node):
            for o in sub.output:
                o.name = new if o.name == old else o.name
    for info in graph.value_info:
        info.name = new if info.name == old else info.name


def find_place(
    graph: Graph, given: str | None, axis: int | None, *, probs: bool, add: bool, labels: bool = False
) -> Place:
    """Find where the map goes. ``probs``: it takes probabilities; ``add``: outputs stay, one more is made.

    ``labels``: columns do not exclude each other, so that the model ends in a Sigmoid instead of a Softmax.
    """
    endings = OF_LABELS if labels else OF_CLASSES
    if graph.opset < MIN_OPSET:
        raise InputError(
            f"{graph.where}: opset {graph.opset}, but a map needs {MIN_OPSET} or newer; bring the model there with "
            "onnx.version_converter.convert_version"
        )
    if given is not None:
        return replace(_at(graph, given, axis, endings, probs=probs, add=add), named=True)
    if len(graph.outputs) != 1:
        raise _ambiguous(graph, f"{len(graph.outputs)} outputs", probs)
    node = graph.origin(graph.outputs[0])
    if is_op(node, endings[0]):
        return _place(graph, node.input[0], node, axis, holds="logits")
    if graph.layer_of(node) is not None and not probs:
        return _place(graph, graph.outputs[0], None, axis, holds="logits")
    what = "an input of the graph" if node is None else f"a {node.op_type}"
    raise _ambiguous(graph, f"the output {graph.outputs[0]!r} comes from {what}", probs)


def _at(graph: Graph, name: str, axis: int | None, kinds: tuple[str, ...], *, probs: bool, add: bool) -> Place:
    if name not in graph.maker:
        raise InputError(f"{graph.where}: there is no tensor {name!r} that a node makes; {_listed(graph, probs)}")
    node = graph.origin(name)
    if is_op(node, kinds[0]) and _reaches_output(graph, node.output[0]):
        itself = node.output[0] == name
        if (itself and not add) if probs else (itself or name in graph.outputs):
            return _place(graph, node.input[0], node, axis, holds="logits")
    if is_op(node, kinds[0]) and not probs:
        raise InputError(
            f"{graph.where}: {name!r} is the output of a {kinds[0]} and holds probabilities, but the map expects logits"
            f". Use its input, {node.input[0]!r}"
        )
    users = graph.users.get(name, [])
    endings = [user for user in users if is_op(user, *kinds) and _reaches_output(graph, user.output[0])]
    if len(endings) == 1 and name not in graph.outputs and not add:
        return _place(graph, name, endings[0], axis, holds="logits")
    if name not in graph.outputs and not add:
        raise InputError(
            f"{graph.where}: {name!r} is neither an output nor what a last {kinds[0]} takes, so that nothing can take "
            "the calibrated one's place; add an output: " + "outputs='add'",
            param="outputs",
        )
    place = _place(graph, name, None, axis, holds="probs" if probs else "logits")
    kind: OutputKind = "probs" if probs else "log_probs" if is_op(node, "LogSoftmax") else "logits"
    return replace(place, kind=kind)


def _reaches_output(graph: Graph, name: str) -> bool:
    """Return whether a tensor is an output, or becomes one by changes of shape alone."""
    while name not in graph.outputs:
        users = graph.users.get(name, [])
        if len(users) != 1 or not is_op(users[0], *SHAPERS):
            return False
        name = users[0].output[0]
    return True


def _place(graph: Graph, reads: str, ending: Any, axis: int | None, *, holds: OutputKind) -> Place:
    t = graph.types.get(reads) or graph.types.get(ending.output[0] if ending is not None else "")
    if t is None or t.elem_type not in FLOATS:
        raise InputError(f"{graph.where}: {reads!r} is not of a known floating-point type, as logits are")
    shape = graph.shape(reads) or (graph.shape(ending.output[0]) if ending is not None else None)
    rank = None if shape is None else len(shape)
    found = _axis(graph, reads, ending, axis, rank)
    n_classes = None if shape is None else shape[found]
    if n_classes == 0:
        raise InputError(f"{graph.where}: {reads!r} has 0 classes; expected at least one")
    kind = "logits" if ending is None else ENDINGS[ending.op_type]
    return Place(reads, kind, ending, found, rank, t.elem_type, n_classes, holds)


def _axis(graph: Graph, reads: str, ending: Any, axis: int | None, rank: int | None) -> int:
    """Axis of the classes, from the end."""
    if axis is None and is_op(ending, "Softmax", "LogSoftmax"):
        axis = next((a.i for a in ending.attribute if a.name == "axis"), -1)
    maker = graph.maker.get(reads)
    layer = graph.layer_of(maker)
    if axis is None and (layer is not None or (rank == 2 and not is_op(maker, "Transpose", *LINEAR))):
        axis = 1 if is_op(layer, "Conv") else -1
    if axis is None:
        raise InputError(
            f"{graph.where}: {reads!r} has {rank or 'an unknown number of'} axes; specify that of the classes: "
            "axis=1 or axis=-1",
            param="axis",
        )
    if axis < 0 and (rank is None or axis >= -rank):
        return axis
    if rank is None or not 0 <= axis < rank:
        raise InputError(f"{graph.where}: axis {axis} of {reads!r}, which has {rank or 'an unknown number of'} axes")
    return axis - rank


def _listed(graph: Graph, probs: bool) -> str:
    endings = [name for n in graph.graph.node if is_op(n, *ENDINGS) for name in (*n.input, *n.output)]
    candidates = ", ".join(map(repr, dict.fromkeys([*graph.outputs, *endings])))
    return (
        f"candidates are {candidates}. Choose the one that holds {'probabilities' if probs else 'logits'}: "
        f"logits={'NAME'!r}"
    )


def _ambiguous(graph: Graph, why: str, probs: bool) -> InputError:
    takes = "probabilities" if probs else "logits"
    return InputError(f"{graph.where}: it is not clear where the {takes} are: {why}; {_listed(graph, probs)}")
