"""Texts as their words: where each word stands, and what is left of a text when some are deleted."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sointer._support import cached_property, containers
from sointer.data.inputs import InputFormat
from sointer.data.text_pieces import pieces_of, read_pieces
from sointer.errors import InputError, LoadError

By = Literal["words", "occurrences", "sentences", "function"]
Splitter = Callable[[str], Iterable[Any]]
UNSEEN = "(words not seen in fit)"
SENTENCE = re.compile(r"[^.!?…。！？।\n]*(?:[.!?…。！？।]+[\"'”’»)\]]*|\n+|$)")
WITHOUT_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without blanks: there every letter is a word."""
MAX_LETTER = 0x1FFFF
SYMBOLS = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
"""Emoji and dingbats: each is a word."""
FLAG, TONES, SELECTORS = "[\U0001f1e6-\U0001f1ff]{2}", "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f", "\ufe00-\ufe0f"


@cache
def word_pattern() -> re.Pattern[str]:
    """Runs of letters, digits and the marks on them, with apostrophes inside; emoji; without blanks, one letter."""
    codes = [code for code in range(0x300, MAX_LETTER) if unicodedata.category(chr(code)) in ("Mn", "Mc", "Me")]
    breaks = np.flatnonzero(np.diff(codes) != 1)
    first, last = np.array(codes)[np.r_[0, breaks + 1]], np.array(codes)[np.r_[breaks, -1]]
    marks = "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(first.tolist(), last.tolist(), strict=True))
    letter = rf"(?:(?![{WITHOUT_BLANKS}])[\w{marks}])"
    emoji = rf"[{SYMBOLS}][{marks}{TONES}]*"
    return re.compile(
        rf"{FLAG}|{emoji}(?:\u200d{emoji})*|(?![{marks}])[{WITHOUT_BLANKS}][{marks}]*"
        rf"|(?![{SELECTORS}]){letter}+(?:['’]{letter}+)*"
    )


def is_text(X: Any) -> bool:
    """Whether X is a list, an array or a column of strings, one document each."""
    if isinstance(X, str):
        raise InputError("X is one string, expected a list of them, one for each document. Give [text].")
    is_table = containers.is_frame(X) or containers.backend_of(X) is not None
    if is_table or containers.is_sparse(X) or containers.is_tensor(X):
        return False
    if getattr(X, "ndim", 1) != 1 or not hasattr(X, "__len__") or len(X) == 0:
        return False
    wrong = [i for i, document in enumerate(X) if not isinstance(document, str)]
    if wrong and 2 * len(wrong) <= len(X):  # else it may be one sample of a table, among whose values is a string
        document = list(X)[wrong[0]]
        raise InputError(
            f"X holds strings, but {len(wrong)} of {len(X)} documents are not strings: the first is {document!r:.40}, "
            f"at {wrong[0]}. Drop them, or give '' for an empty text."
        )
    return not wrong


@dataclass(frozen=True, eq=False)
class Document:
    """A text, its pieces that can be deleted, and its words."""

    text: str
    places: npt.NDArray[np.int32]
    """Where each piece begins and ends: (pieces, 2); as tuples they would take 15 times as much."""
    columns: npt.NDArray[np.int64]
    """The column of each piece."""
    words: npt.NDArray[np.int64]
    """The number of each word, in the order of the text."""
    word_columns: npt.NDArray[np.int64]
    """The column of the piece that each word belongs to."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where each piece begins and ends."""
        return [(start, end) for start, end in self.places.tolist()]

    def reduced(self, kept: Sequence[bool], token: str | None) -> str:
        """The text with all other pieces deleted, or replaced by `token`; order and punctuation stay."""
        if all(kept):
            return self.text
        if token is None and not any(kept):
            return ""
        parts: list[str] = []
        last, cut = 0, False
        for (start, end), stays in zip(self.spans, kept, strict=True):
            if stays:
                continue
            parts.append(_joined(parts, self.text[last:start], cut))
            if token is not None:
                parts.append(token)
            last, cut = end, token is None
        parts.append(_joined(parts, self.text[last:], cut))
        return "".join(parts) if token is not None else "".join(parts).strip()


def _joined(before: list[str], part: str, cut: bool) -> str:
    """A part that follows a deleted one: of the blanks around that, one side is enough."""
    if cut and part[:1].isspace():
        tail = next((one for one in reversed(before) if one), " ")
        return part.lstrip() if tail[-1].isspace() else part
    return part


class Documents(sparse.csr_array):
    """Texts as counts of their pieces, CSR (texts, columns); a piece without an entry is deleted."""

    documents: npt.NDArray[np.object_] | None = None
    """The whole texts, one `Document` for each row."""
    token: str | None = None
    """What stands in place of a deleted piece."""

    def __getitem__(self, rows: Any) -> Any:
        found = super().__getitem__(rows)
        if self.documents is not None and isinstance(found, Documents) and not isinstance(rows, tuple):
            found.documents, found.token = self.documents[rows], self.token
        return found

    @classmethod
    def of(cls, documents: Sequence[Document], n_columns: int) -> Documents:
        """Whole texts."""
        lengths = [len(document.columns) for document in documents]
        row = np.repeat(np.arange(len(documents)), lengths)
        columns = np.concatenate([d.columns for d in documents]) if len(documents) else np.zeros(0, dtype=np.int64)
        made = cls((np.ones(len(row)), (row, columns)), shape=(len(documents), n_columns))
        made.sum_duplicates()
        made.documents = np.empty(len(documents), dtype=object)
        made.documents[:] = documents
        return made

    def masked(self, keep: npt.NDArray[np.bool_], token: str | None) -> Documents:
        """The same texts with only those pieces whose column is kept: keep (texts, columns)."""
        row = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        kept = keep[row, self.indices]
        starts = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        made = type(self)((self.data[kept], self.indices[kept], starts), shape=self.shape)
        made.documents, made.token = self.documents, token
        return made

    @classmethod
    def stack(cls, parts: Sequence[Documents]) -> Documents:
        """Some texts below others."""
        made = cls(sparse.vstack([containers.csr_array(part) for part in parts], format="csr"))
        made.documents = np.concatenate([part.documents for part in parts if part.documents is not None])
        made.token = parts[0].token
        return made

    def has_entries(self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether rows have an entry in columns, pairwise."""
        own = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)) * self.shape[1] + self.indices
        wanted = rows * self.shape[1] + columns
        place = np.searchsorted(own, wanted)
        found = place < len(own)
        found[found] = own[place[found]] == wanted[found]
        return np.asarray(found)

    def tokens(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Row, place in the text, number and column of every word that is left."""
        assert self.documents is not None
        documents = list(self.documents)
        lengths = np.array([len(document.words) for document in documents], dtype=np.int64)
        row = np.repeat(np.arange(len(documents)), lengths)
        nothing = np.zeros(0, dtype=np.int64)
        words = np.concatenate([nothing, *(document.words for document in documents)])
        columns = np.concatenate([nothing, *(document.word_columns for document in documents)])
        place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kept = self.has_entries(row, columns)
        return row[kept], place[kept], words[kept], columns[kept]

    def kept_pieces(self) -> Iterator[tuple[Document, list[bool]]]:
        """Each text, and which of its pieces are left."""
        assert self.documents is not None
        documents = list(self.documents)
        lengths = [len(document.columns) for document in documents]
        row = np.repeat(np.arange(len(documents)), lengths)
        columns = np.concatenate([np.zeros(0, dtype=np.int64), *(document.columns for document in documents)])
        kept, ends = self.has_entries(row, columns).tolist(), np.cumsum(lengths).tolist()
        for document, length, end in zip(documents, lengths, ends, strict=True):
            yield document, kept[end - length : end]

    def texts(self) -> list[str]:
        """What is left of each text."""
        return [document.reduced(kept, self.token) for document, kept in self.kept_pieces()]

    def keys(self) -> list[str]:
        """A text for every row, which two rows share if they are the same."""
        return self.texts()


def stacked(parts: Sequence[Any]) -> Any:
    """Rows, dense or sparse, or texts, some below others."""
    if isinstance(parts[0], Documents):
        return type(parts[0]).stack(parts)
    return sparse.vstack(parts, format="csr") if containers.is_sparse(parts[0]) else np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class TextFormat(InputFormat):
    """Texts: what their pieces are, and which were there in fit; all others together are one more.

    Examples
    --------
    >>> form = TextFormat.of(["The band played.", "the song"])
    >>> form.feature_names
    ['the', 'band', 'played', 'song', '(words not seen in fit)']
    >>> form.decode(form.encode(["Play the song!"], caller="explain"))
    ['Play the song!']
    """

    by: By = "words"
    split: Splitter | None = None
    """The owner's function from a text to its pieces, as strings or as (start, end)."""
    words: list[str] = field(default_factory=list)
    """Words by number, where pieces are not words."""
    has_words = True

    @classmethod
    def of(cls, texts: Sequence[str], groups: Any = None) -> TextFormat:
        """What texts consist of; `groups` is "sentences", "occurrences" or a function that splits a text."""
        by, split = read_by(groups)
        made = cls("text", [UNSEEN], "str", by=by, split=split, words=[])
        pieces: dict[str, str] = {}
        words: dict[str, None] = {}
        for text in texts:
            spans, names, own, _ = made.parse(text)
            for (start, end), name in zip(spans, names, strict=True):
                if name not in pieces:
                    pieces[name] = name if by == "sentences" else shown(name, text[start:end])
            words.update(dict.fromkeys(own))
        if not pieces:
            raise InputError(
                f"fit: X holds {len(texts)} texts without any word, expected some to explain. Check how X was "
                "selected, or give groups= a function that splits a text of yours."
            )
        pieces.pop(UNSEEN, None)
        own_words = [] if by in ("words", "function") else list(words)
        return cls("text", [*pieces.values(), UNSEEN], "str", by=by, split=split, words=own_words)

    @property
    def n_words(self) -> int:
        """How many different words there are; the last stands for all that were not seen."""
        return len(self.words) + 1 if self.words else len(self.feature_names)

    @cached_property
    def _column_of(self) -> dict[str, int]:
        return {normal(name): column for column, name in enumerate(self.feature_names)}

    @cached_property
    def _word_of(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)} if self.words else self._column_of

    def encode(self, X: Any, caller: str = "encode") -> Any:
        """Texts, or a DataFrame with one column of them, as `Documents`."""
        X = containers.as_pandas(X)
        if containers.is_frame(X) and X.shape[1] == 1:
            X = X.iloc[:, 0].tolist()
        if not is_text(X):
            raise InputError(
                f"{caller}: X is {containers.describe(X)}{_first_of(X)}, but texts were fitted; give a list of "
                "strings, one for each text."
            )
        return Documents.of([self.document(str(text)) for text in X], self.n_columns)  # numpy has its own

    def decode(self, Z: Any) -> Any:
        """What is left of texts, as a list of strings."""
        if not isinstance(Z, Documents) or Z.documents is None:
            raise InputError(
                f"decode got {containers.describe(Z)}, expected texts: which words there are does not say in which "
                "order. This method cannot be used with texts; SOInter can."
            )
        return Z.texts()

    def replaced(self, documents: Documents, change: Callable[[Document], str]) -> Any:
        """Other texts in place of these, as the model takes them."""
        assert documents.documents is not None
        return [change(document) for document in documents.documents]

    def document(self, text: str) -> Document:
        """A text with the columns and numbers of its pieces and words."""
        spans, names, words, piece_of = self.parse(text)
        columns = np.array([self._column_of.get(name, self.n_columns - 1) for name in names], dtype=np.int64)
        numbers = np.array([self._word_of.get(word, self.n_words - 1) for word in words], dtype=np.int64)
        return Document(text, np.array(spans, dtype=np.int32).reshape(-1, 2), columns, numbers, columns[piece_of])

    def parse(self, text: str) -> tuple[list[tuple[int, int]], list[str], list[str], npt.NDArray[np.int64]]:
        """The spans and names of all pieces, all words, and which piece each word is in."""
        spans = [match.span() for match in word_pattern().finditer(text)]
        if self.by == "sentences":
            starts = np.array([start for start, _ in spans], dtype=np.int64)
            found = [(match.start(), match.end()) for match in SENTENCE.finditer(text)]
            pieces = [(a, b) for a, b in found if ((starts >= a) & (starts < b)).any()]
            names = [f"sentence {number}" for number, _ in zip(count(1), pieces, strict=False)]
            piece_of = np.searchsorted([b for _, b in pieces], starts, side="right")
            return pieces, names, [normal(text[a:b]) for a, b in spans], piece_of
        if self.split is not None:
            spans = read_pieces(pieces_of(self.split, text), text)
        elif self.by == "function":
            raise LoadError(
                "This explainer splits texts with its owner's function, which is not saved; expected it to be given "
                "again on loading. Load it with sointer.load(path, model, splitter=function)."
            )
        words = [normal(text[a:b]) for a, b in spans]
        return spans, numbered(words) if self.by == "occurrences" else words, words, np.arange(len(words))

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `restored`."""
        return super().to_json() | {"by": self.by, "words": list(self.words)}

    @classmethod
    def restored(cls, data: dict[str, Any], split: Splitter | None = None) -> TextFormat:
        """The inverse of `to_json`."""
        by, names, words = data["by"], list(data["feature_names"]), list(data["words"])
        good = by in ("words", "occurrences", "sentences", "function") and names[-1:] == [UNSEEN]
        if (
            not good
            or not all(isinstance(name, str) for name in (*names, *words))
            or (bool(words) != (by in ("occurrences", "sentences")))
        ):
            raise LoadError("The saved format of texts is damaged: it is not what TextFormat.to_json writes.")
        return cls("text", names, "str", by=by, split=split, words=words)


def normal(word: str) -> str:
    """A word without case, in one of the ways to write it; as one object, however often it occurs."""
    return sys.intern(unicodedata.normalize("NFC", word).casefold())


def shown(name: str, word: str) -> str:
    """The name of a piece in its own letters: `normal` makes "grossartig [2]" of the second "Großartig"."""
    return unicodedata.normalize("NFC", word).lower() + name.removeprefix(normal(word))


def numbered(words: Sequence[str]) -> list[str]:
    """Each occurrence with a name of its own: good, good [2], good [3]."""
    seen: dict[str, int] = {}
    names = []
    for word in words:
        seen[word] = seen.get(word, 0) + 1
        names.append(word if seen[word] == 1 else f"{word} [{seen[word]}]")
    return names


def _first_of(X: Any) -> str:
    if isinstance(X, (list, tuple)) and X:
        return f" that holds {X[0]!r:.40} of type {type(X[0]).__name__}"
    return ""


def distinct_texts(X: Any) -> tuple[Any, npt.NDArray[np.int64] | None]:
    """Texts, each once, and which of them every text is; anything else as it is.

    What is left of different texts is often the same, and slow models should not read it twice.
    """
    if not isinstance(X, list):
        return X, None
    place_of: dict[str, int] = {}
    which = np.array([place_of.setdefault(text, len(place_of)) for text in X], dtype=np.int64)
    return list(place_of), which


def read_by(groups: Any) -> tuple[By, Splitter | None]:
    """What the pieces of texts are, as the user says it."""
    if callable(groups):
        return "function", groups
    if isinstance(groups, str) and groups not in ("sentences", "occurrences"):
        raise InputError(
            f"groups={groups!r}: of texts, expected 'sentences', 'occurrences' (each occurrence of a word alone), a "
            "function that splits a text, or a dictionary of words that belong together."
        )
    return (groups if isinstance(groups, str) else "words"), None  # type: ignore[return-value]
