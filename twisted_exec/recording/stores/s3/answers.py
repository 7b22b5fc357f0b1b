"""
Answers of S3, which are XML.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from twisted_exec.recording.stores.interfaces import StoreError

_MESSAGE_CHARACTERS = 200
_FULL = ("EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity")
_INSUFFICIENT_STORAGE = 507
_MOST_MARKS = 60_000
"""
Opening brackets, and equals signs, of an answer; a full page has some 25 000.  A million of them take a second to
parse, in which no console is served.
"""


class Part(NamedTuple):
    """A part of an upload."""

    size: int
    etag: str


@dataclass(frozen=True)
class Page:
    """
    A page of a list.

    :param elements: the entries, each with the texts of its elements.
    :param is_last: there are no more pages.
    """

    elements: Sequence[dict[str, str]]
    is_last: bool


def page(body: bytes, entry: str) -> Page:
    """
    Read a page of a list.

    :param entry: name of the elements of entries.
    :raises StoreError: it is not a page.
    """
    tree = _parse(body)
    entries = [
        {_name(field): field.text or "" for field in each} for each in tree if _name(each) == entry
    ]
    # Services differ in the name of the root; all have this element.
    truncated = tree.findtext("{*}IsTruncated")
    if truncated is None:
        raise StoreError("answer", _NOT_S3)
    return Page(entries, truncated != "true")


def text(body: bytes, name: str) -> str:
    """
    Return the text of an element.

    :raises StoreError: there is none.
    """
    value = _parse(body).findtext(f"{{*}}{name}", "")
    if not value:
        raise StoreError("answer", f"the bucket's answer has no {name}")
    return value


def require_success(code: int, body: bytes) -> None:
    """
    Check an answer, also one that reports its failure in the body of a 200.

    :raises StoreError: the request failed.
    """
    if 200 <= code < 300 and b"<Error" not in body[:1000]:
        return
    if 300 <= code < 400:
        raise StoreError(
            "refused",
            f"the bucket answered {code}; redirects are not followed: correct the endpoint, region "
            "and style in the URL of the store",
        )
    name, message = error(body)
    kind = "full" if code == _INSUFFICIENT_STORAGE or name in _FULL else "refused"
    details = ": ".join(filter(None, (name, message)))
    raise StoreError(kind, f"the bucket answered {code}" + (f": {details}" if details else ""))


def error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error; they are empty if there are none."""
    try:
        tree = _parse(body)
    except StoreError:
        return "", ""
    # The other elements repeat parts of the request, which logs do not need.
    name, message = (tree.findtext(f"{{*}}{each}", "") for each in ("Code", "Message"))
    return _one_line(name), _one_line(message).rstrip(".")


def completion(etags: Iterator[str]) -> bytes:
    """Return the body of the request that joins the parts, which are in their order."""
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    )
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    return (
        f'<CompleteMultipartUpload xmlns="{namespace}">{parts}</CompleteMultipartUpload>'.encode()
    )


def _parse(body: bytes) -> ElementTree.Element:
    # S3 sends white space while a long request is under way.  A declaration could define entities
    # that expand to any amount of memory; no answer of S3 has one.  In another encoding it would be
    # overlooked here.
    try:
        content = body.strip().decode()
        if "<!" in content or max(content.count("<"), content.count("=")) > _MOST_MARKS:
            raise ValueError
        tree = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise StoreError("answer", _NOT_S3) from None
    return tree


_NOT_S3 = "the bucket's answer is not one of S3: check the URL of the store"


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _one_line(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable[:_MESSAGE_CHARACTERS].strip()
