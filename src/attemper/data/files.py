"""Files: one loop that reads scores in pieces, and one writer of tables.

A piece is a file, an Arrow batch, or a slice of an .npy file; one .npz must fit in memory.
"""

from __future__ import annotations

import glob
import hashlib
import io
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper._typing import PathLike
from attemper.data.frames import IDS, Layout, Named, layout_of, picked
from attemper.data.inputs import NUMERAL, WHOLE, as_plain
from attemper.data.scores import Scores
from attemper.errors import AttemperError, FileError, InputError, require

TABLES = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc"}
ARRAYS = (".npy", ".npz", ".safetensors")
WRITTEN = (".csv", ".parquet", ".jsonl", ".npz")
BATCH_ELEMENTS = 1 << 20  # numbers of a piece: 8 MB
TEXT_BLOCK = 1 << 22  # bytes of text of a piece; the types of its columns are those of the first block

Options = Mapping[str, Any]  # those of `Read`, and labels


class Piece(NamedTuple):
    """Some rows of the files: scores, and the columns of the table they come from, where these were asked for."""

    scores: Scores
    table: Named


def expand(paths: Any) -> list[str]:
    """Return the files of paths and patterns; those of a pattern are sorted."""
    found: list[str] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else list(paths):
        name = os.fspath(path)
        if "://" in name:
            with reading(name):
                fsspec = require("fsspec", extra="files", why="to read addresses")
                files = [file.full_name for file in fsspec.open_files(name)]
        elif glob.has_magic(name) and not Path(name).exists():
            files = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 (patterns may be absolute)
        elif Path(name).is_file():
            files = [name]
        else:
            is_folder = Path(name).is_dir()
            raise FileError(f"{name}: is a folder. Use {name}/*" if is_folder else f"{name}: there is no such file")
        if not files:
            raise FileError(f"{name}: no file matches this pattern")
        found += files
    if len({*found}) < len(found):
        raise FileError(f"{max(found, key=found.count)}: was passed twice. Use each file once.")
    return found


def pieces(paths: Sequence[str], *, keep: bool = False, **options: Any) -> Iterator[Piece]:
    """Read files piece by piece; ``keep`` the columns of tables too. The options are those of `Read`."""
    settings, ignored, columns = settings_of(options), options.get("ignore_index"), None
    for path, first, table, own in _picked_pieces(paths, options, keep=keep):
        columns = columns or {*table}
        if keep and columns != {*table}:
            raise InputError(f"data: {paths[0]} and {path} differ in their columns", "data")
        if not keep and _nothing_counts(own, ignored):
            continue
        with reading(path, first):
            scores = Scores.of(**own, **settings)
        yield Piece(scores, table if keep else {})


def _nothing_counts(own: Mapping[str, Any], ignored: int | None) -> bool:
    """Whether the weights of a piece are all 0, or its labels are all to be ignored."""
    y, w = own.get("labels"), own.get("sample_weight")
    none = ignored is not None and y is not None and bool((y == ignored).all())
    return none or (w is not None and w.dtype.kind in "biuf" and not w.any())


def whole(paths: Sequence[str], **options: Any) -> Scores:
    """Read all files into one `Scores`; their columns must agree."""
    parts = [(path, own) for path, _, _, own in _picked_pieces(paths, options, whole=True)]
    path, own = parts[0]
    for other, more in parts[1:]:
        alike = all(more[name] == own[name] for name in ("input", "classes"))
        if not alike or more["values"].shape[1:] != own["values"].shape[1:] or more.keys() != own.keys():
            raise InputError(f"data: {path} and {other} differ in their columns", "data")
    if len(parts) > 1:
        arrays = ("values", *IDS)
        own = {k: np.concatenate([p[k] for _, p in parts]) if k in arrays else v for k, v in own.items()}
    with reading(path if len(parts) == 1 else f"{path} and {len(parts) - 1} more"):
        return Scores.of(**own, **settings_of(options), files=paths)


def smallest_probability(paths: Sequence[str], **options: Any) -> float | None:
    """Look through files of probabilities once: return half of the smallest positive one, as `Scores` reads zeros."""
    found = (piece.scores.zeros_as for piece in pieces(paths, **options))
    return min((value for value in found if value is not None), default=None)


def sha256_of(path: PathLike) -> str:
    """Return the hash of a file's bytes."""
    with _opened(os.fspath(path)) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def reading(path: str, first: int = 0) -> Iterator[None]:
    """Whatever a parser raises is one `FileError` that names the file; our own errors get its name."""
    try:
        yield
    except InputError as error:
        rows = f" (rows are counted from {first})" if first else ""
        raise type(error)(f"{path}: {error}{rows}", error.param) from None
    except (AttemperError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        text = ".csv" in path and "to double" not in reason
        fix = ". A CSV file needs commas between the columns, and UTF-8" if text else ""
        raise FileError(f"{path}: cannot be read ({reason}){fix}") from None


def entries_beside(options: Options, names: Sequence[str] = ()) -> Named:
    """Return those of IDS that are not in the table: arrays, or the paths of .npy and .txt files."""
    found: Named = {}
    for param in IDS:
        given = options.get(param)
        if isinstance(given, str | os.PathLike):
            if Path(given).suffix.lower() in (".npy", ".txt") and os.fspath(given) not in names:
                found[param] = _entries_of(os.fspath(given))
        elif given is not None and given is not False:
            found[param] = as_plain(given)
    return found


def settings_of(options: Options) -> dict[str, Any]:
    """Return the options of `Scores.of` that are not in the files."""
    return {key: value for key, value in options.items() if key not in (*IDS, "columns", "input", "classes")}


def _picked_pieces(
    paths: Sequence[str], options: Options, *, keep: bool = False, whole: bool = False
) -> Iterator[tuple[str, int, Named, dict[str, Any]]]:
    """Yield path, number of the first row, table, and what `Scores.of` takes, of each piece.

    What is beside the files has one entry for each row of all of them.
    """
    beside = entries_beside(options)
    start = 0
    for path in paths:
        before = start
        with reading(path):
            for table, layout in _tables(path, options, beside, keep, whole):
                own = picked(table, layout, options.get("axis"))
                n = len(own["values"])
                for param, column in beside.items():
                    own[param] = column[start : start + n]
                    if len(own[param]) < n:
                        rows = f"{start + n} rows or more"
                        raise InputError(
                            f"{param}: expected one entry for each row, got {len(column)} for {rows}", param
                        )
                start += n
                for column in beside.values():
                    _release(None if whole else column)
                yield path, start - n - before, table, own
    if not start:
        raise InputError(f"{paths[0]}: data: there are no rows", "data")
    for param, column in beside.items():
        if len(column) > start:
            raise InputError(f"{param}: expected one entry for each row, got {len(column)} for {start} rows", param)


def _tables(path: str, options: Options, beside: Named, keep: bool, whole: bool) -> Iterator[tuple[Named, Layout]]:
    """Yield columns or arrays of one file, some rows at a time, and where they have what."""
    suffix = Path(path).suffix.lower()
    if suffix in ARRAYS:
        arrays = _arrays(path, suffix)
        layout = layout_of(list(arrays), beside, **options)
        values = arrays[layout.columns[0]]
        n = step = len(values)
        if suffix == ".npy" and not whole and values.ndim <= 2:
            step = BATCH_ELEMENTS * n // max(values.size, 1)
        for first in range(0, max(n, 1), max(step, 1)):
            part = slice(first, first + max(step, 1))
            yield {key: a[part] if a.ndim and len(a) == n else a for key, a in arrays.items()}, layout
            _release(values if step < n else None)
        return
    data = _dataset(path, suffix)
    layout = layout_of(data.schema.names, beside, **options)
    needed = data.schema.names if keep else layout.needed
    for batch in _batches(data, path, TABLES[suffix], needed, layout, whole):
        if len(batch):
            yield {name: _column(batch.column(name)) for name in needed}, layout


def names_in(path: str) -> list[str]:
    """Return the names of the columns or arrays of a file."""
    with reading(path):
        suffix = Path(path).suffix.lower()
        return list(_arrays(path, suffix) if suffix in ARRAYS else _dataset(path, suffix).schema.names)


def _dataset(path: str, suffix: str) -> Any:
    if suffix not in TABLES:
        raise FileError(f"{path}: unsupported extension {suffix!r}; use one of {', '.join([*ARRAYS, *TABLES])}")
    dataset = require("pyarrow.dataset", extra="files", why=f"to read {suffix} files")
    fs, local = require("fsspec", extra="files").core.url_to_fs(path) if "://" in path else (None, path)
    if suffix == ".csv":
        with _opened(path) as stream:
            header = stream.readline(TEXT_BLOCK).decode("utf-8", "replace")
        if not header:
            raise FileError(f"{path}: the file is empty")
        if "," not in header and (mark := {*";\t|"} & {*header}):
            raise FileError(f"{path}: its separator is {min(mark)!r}. Use commas.")
    return dataset.dataset(local, format=TABLES[suffix], filesystem=fs)


def _batches(data: Any, path: str, kind: str, needed: list[str], layout: Layout, whole: bool) -> Iterator[Any]:
    """Yield Arrow tables: one, or batches of bounded size."""
    import pyarrow as pa

    if kind == "csv":
        from pyarrow import csv

        # Scores are numbers, whatever the first of them look like; all but labels and weights is text, as it is. A
        # text in quotes may have several lines, which takes three times as long to read.
        # Labels are it, too, where a class has a name that is lost as a number, such as 01.
        lost = any(NUMERAL.fullmatch(name) and not WHOLE.fullmatch(name) for name in map(str, layout.classes or ()))
        own = np.hstack([layout.keys.get(param, []) for param in ("labels", "sample_weight")[lost:]])
        types = {name: pa.string() for name in needed if name not in own}
        types |= dict.fromkeys(layout.columns, pa.float64())
        convert = csv.ConvertOptions(column_types=types, include_columns=needed)
        with _opened(path, native=True) as stream:
            parse = csv.ParseOptions(newlines_in_values=b'"' in stream.read(TEXT_BLOCK))
            stream.seek(0)
            make = csv.read_csv if whole else csv.open_csv
            try:
                found = make(stream, csv.ReadOptions(block_size=TEXT_BLOCK), parse, convert)
                yield from [found] if whole else found
            except pa.ArrowInvalid as error:  # Arrow counts columns from 0
                names = data.schema.names
                named = re.sub(r"CSV column #(\d+)", lambda found: f"column {names[int(found[1])]!r}", str(error))
                raise pa.ArrowInvalid(named) from None
    elif kind == "json" and whole:  # types are those of all rows
        from pyarrow import json

        with _opened(path, native=True) as stream:
            yield json.read_json(stream)
    elif kind == "parquet":
        from pyarrow import parquet

        rows = max(1024, BATCH_ELEMENTS // max(len(layout.columns), 8))
        with _opened(path, native=True) as stream:
            file = parquet.ParquetFile(stream)
            if whole:
                yield file.read(columns=needed)
                return
            for group in range(file.num_row_groups):  # one at a time: else Arrow keeps all that it read
                yield from file.iter_batches(rows, row_groups=[group], columns=needed)
    elif kind == "ipc" and not whole:
        with _opened(path, native=True) as stream:
            file = pa.ipc.open_file(stream)
            yield from map(file.get_batch, range(file.num_record_batches))
    else:
        yield from [data.to_table(columns=needed)] if whole else data.to_batches(columns=needed)


def _column(column: Any) -> NDArray[Any]:
    """Return an Arrow column: N numbers or texts, or N×K where entries are lists."""
    import pyarrow as pa

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if "list" not in str(column.type).partition("<")[0]:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    import pyarrow.compute as pc

    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    if column.null_count or lengths["min"] != lengths["max"]:
        raise InputError("columns: the lists of a column are not all of one length", "columns")
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1))


def _release(array: Any) -> None:
    """Drop pages of a file on disk that were read, or they would all stay in memory."""
    if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _arrays(path: str, suffix: str) -> Named:
    remote = "://" in path
    if suffix == ".npy":
        return {"": np.load(io.BytesIO(_bytes(path)) if remote else path, mmap_mode=None if remote else "r")}
    if suffix == ".npz":
        with _opened(path) as stream, np.load(stream) as z:
            return {name: z[name] for name in z.files}
    safetensors = require("safetensors.numpy", extra="files", why="to read .safetensors files")
    return dict(safetensors.load(_bytes(path)) if remote else safetensors.load_file(path))


def _entries_of(name: str) -> NDArray[Any]:
    """Return what an .npy file holds, or the lines of a text file; a byte-order mark is no part of the first line."""
    with reading(name):
        if Path(name).suffix.lower() == ".npy":
            return _arrays(name, ".npy")[""]
        lines = _bytes(name).decode("utf-8-sig").splitlines()
    found = np.array(lines, dtype=object)
    whole = lines and all(map(WHOLE.fullmatch, lines))
    return found.astype(np.int64) if whole else found


@contextmanager
def _opened(path: str, native: bool = False) -> Iterator[Any]:
    """Open a file; ``native`` for Arrow, whose threads must not need Python's lock when the program ends."""
    with reading(path):
        if "://" in path:
            with require("fsspec", extra="files").open(path, "rb") as stream:
                yield stream
        else:
            with require("pyarrow", extra="files").OSFile(path) if native else Path(path).open("rb") as stream:
                yield stream


def _bytes(path: str) -> bytes:
    with _opened(path) as stream:
        return bytes(stream.read())


class Writer:
    """Writes tables in pieces to one file, which appears whole at the end or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Writer(f"{folder}/a.npz") as writer:
    ...     writer.add({"probs": np.eye(2)})
    """

    def __init__(self, path: PathLike) -> None:
        self.path, self.suffix = os.fspath(path), Path(path).suffix.lower()
        if self.suffix not in WRITTEN:
            raise FileError(f"{self.path}: unsupported extension {self.suffix!r}; use one of {', '.join(WRITTEN)}")
        if self.suffix in (".csv", ".parquet"):
            require("pyarrow", extra="files", why=f"to write {self.suffix} files")
        self.parts: list[Mapping[str, NDArray[Any]]] = []
        self.sink: Any = None

    def __enter__(self) -> Writer:
        self.stack = ExitStack()
        self.stream = self.stack.enter_context(atomic(self.path))
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        with self.stack:
            if kind is None and self.parts:
                arrays: Any = {key: np.concatenate([part[key] for part in self.parts]) for key in self.parts[0]}
                np.savez(self.stream, **arrays)
            elif error is not None:
                raise error

    def add(self, table: Mapping[str, NDArray[Any]]) -> None:
        """Append rows; columns of N×K arrays are one list a row, in .csv one column each."""
        if self.suffix == ".npz":  # texts, because objects would be pickled
            self.parts.append({k: c.astype(str) if c.dtype == object else c for k, c in table.items()})
        elif self.suffix == ".jsonl":
            rows = zip(*(column.tolist() for column in table.values()))
            self.stream.write(msgspec.json.Encoder().encode_lines([dict(zip(table, row)) for row in rows]))
        else:
            self._add_arrow(_flat(table) if self.suffix == ".csv" else table)

    def _add_arrow(self, table: Mapping[str, NDArray[Any]]) -> None:
        import pyarrow as pa
        from pyarrow import csv, parquet

        arrow = pa.table({k: pa.array(list(c) if c.ndim == 2 else c, from_pandas=True) for k, c in table.items()})
        if self.sink is None:
            make: Any = csv.CSVWriter if self.suffix == ".csv" else parquet.ParquetWriter
            schema = pa.schema([(f.name, pa.string() if f.type == pa.null() else f.type) for f in arrow.schema])
            self.sink, self.schema = self.stack.enter_context(make(self.stream, schema)), schema
        self.sink.write_table(arrow.cast(self.schema))  # whole numbers with gaps are decimals in some pieces


def _flat(table: Mapping[str, NDArray[Any]]) -> Named:
    """Return one column for each column of N×K arrays."""
    found: Named = {}
    for name, column in table.items():
        found |= {f"{name}_{k}": column[:, k] for k in range(column.shape[1])} if column.ndim == 2 else {name: column}
    return found


def write(path: PathLike, tables: Mapping[str, NDArray[Any]] | Iterable[Mapping[str, NDArray[Any]]]) -> None:
    """Write columns, or tables with the same columns one after another, to .csv, .parquet, .jsonl or .npz."""
    with Writer(path) as writer:
        for table in [tables] if isinstance(tables, Mapping) else tables:
            writer.add(table)
