"""Where the references of a schema lead: identifiers, anchors and JSON pointers of one document.

Knows where schemas stand and which names they have, not what else they say. Identifiers are read
as the draft has it: `id` up to draft 4, `$id` later; an `id` in a schema that names no draft is
read where nothing else has that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from ...api.dialects import at, draft_of, has_lone_ref, subschemas
from ..regex.errors import InvalidSchema, steps_of, value_at
from .facts import Node

LOCAL = "a reference into this schema, as '#/$defs/name'"
PUBLISHED = ("http://json-schema.org/", "https://json-schema.org/")


class Unavailable(InvalidSchema):
    """A reference to a document that is not here."""


class Resource(NamedTuple):
    """A schema with an identifier of its own, or the whole document. uri: without a fragment."""

    uri: str
    node: Node
    draft: int | None


class References:
    """The names in a document.

    root: the document. The index is made when the first reference is followed; documents that
    define JSON Schema itself are added when they are referred to, where they are installed (the
    package jsonschema-specifications).
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._by_path: dict[str, Resource] = {}
        self._by_uri: dict[str, Resource] = {}
        self._by_old_id: dict[str, Resource] = {}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._dynamic: dict[tuple[str, str], Node] = {}

    def target(self, node: Node, keyword: str) -> Node:
        """The schema to which a reference of this one leads. Raises InvalidSchema.

        keyword: `$ref`, `$dynamicRef` or `$recursiveRef`.
        """
        assert isinstance(node.schema, Mapping)
        reference = node.schema[keyword]
        if not isinstance(reference, str):
            raise InvalidSchema(LOCAL)
        found, name = self._found(self.resource(node.path), reference)
        if keyword == "$ref":
            return found
        return self._redirected(found, name if keyword == "$dynamicRef" else "", keyword)

    def draft(self, path: str) -> int | None:
        """The draft in which the schema at a place is written; None where it names none."""
        return self.resource(path).draft

    def resource(self, path: str) -> Resource:
        """The innermost resource that holds a place."""
        known = self._index
        while path not in known:
            path = path.rpartition("/")[0]
        return known[path]

    @cached_property
    def _index(self) -> dict[str, Resource]:
        self._add(self._root, "")
        return self._by_path

    def _add(self, root: Node, uri: str) -> None:
        """Find all names below the root of a document."""
        top = Resource(uri, root, draft_of(root.schema))
        self._by_path[root.path] = top
        self._by_uri.setdefault(uri, top)
        todo = [(root, top)]
        while todo:
            node, resource = todo.pop()
            if not isinstance(node.schema, Mapping):
                continue
            inner = self._named(node, resource)
            todo += [
                (Node(value, at(node.path, *keys)), inner)
                for keys, value in subschemas(node.schema)
                if isinstance(value, Mapping)
            ]

    def _named(self, node: Node, outer: Resource) -> Resource:
        """The resource that this schema is, or belongs to; its names are noted."""
        assert isinstance(node.schema, Mapping)
        draft = draft_of(node.schema, outer.draft)
        if has_lone_ref(node.schema, draft):
            return outer
        own = node.schema.get("id" if draft in (3, 4) else "$id")
        resource = self._identified(node, outer, own, draft) if isinstance(own, str) else outer
        if not isinstance(own, str) and isinstance(old := node.schema.get("id"), str):
            self._note_old_id(node, outer, old, draft)
        if draft is None or draft >= 2019:
            self._note_anchors(node, resource)
        return resource

    def _note_old_id(self, node: Node, outer: Resource, old: str, draft: int | None) -> None:
        """An `id` of which the draft knows nothing."""
        uri, name = urldefrag(old)
        if uri:
            self._by_old_id.setdefault(_joined(outer.uri, uri), Resource(outer.uri, node, draft))
        elif name:
            self._anchors.setdefault((outer.uri, name), node)

    def _note_anchors(self, node: Node, resource: Resource) -> None:
        assert isinstance(node.schema, Mapping)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.schema.get(keyword), str):
                self._anchors.setdefault((resource.uri, name), node)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault((resource.uri, name), node)
        if node.schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault((resource.uri, ""), node)

    def _identified(self, node: Node, outer: Resource, own: str, draft: int | None) -> Resource:
        uri, name = urldefrag(own)
        resource = outer
        if uri:
            resource = Resource(urldefrag(_joined(outer.uri, uri))[0], node, draft)
            self._by_path[node.path] = resource
            self._by_uri.setdefault(resource.uri, resource)
        if name and not name.startswith("/"):
            self._anchors.setdefault((resource.uri, name), node)
        return resource

    def _found(self, base: Resource, reference: str) -> tuple[Node, str]:
        """Where a reference leads, and its fragment."""
        uri, fragment = urldefrag(reference)
        resource = self._document(_joined(base.uri, uri)) if uri else base
        fragment = unquote(fragment)
        if not fragment:
            return resource.node, ""
        if fragment.startswith("/"):
            return _pointed(resource.node, fragment), ""
        found = self._anchors.get((resource.uri, fragment))
        if found is None:
            raise InvalidSchema(f"an anchor that the schema defines, or {LOCAL}")
        return found, fragment

    def _document(self, uri: str) -> Resource:
        uri = urldefrag(uri)[0]
        resource = self._by_uri.get(uri) or self._by_old_id.get(uri)
        if resource is None and (published := _published(uri)) is not None:
            self._add(Node(published, f"{uri}#"), uri)
            resource = self._by_uri[uri]
        if resource is None:
            raise Unavailable(
                f"{LOCAL}; the document {uri!r} is not available: put it under $defs, with"
                " this URI as its $id"
            )
        return resource

    def _redirected(self, found: Node, name: str, keyword: str) -> Node:
        """The outermost schema of the same dynamic anchor. The document's root is outside of all
        others; between others the way to them would tell, which is not followed."""
        uri = self.resource(found.path).uri
        known = self._dynamic.get((uri, name))
        if known is None or known.path != found.path:
            return found
        outermost = self._dynamic.get((self.resource("#").uri, name))
        others = [node for (_, other), node in self._dynamic.items() if other == name]
        if outermost is None and len(others) > 1:
            raise InvalidSchema(f"$ref, or a {keyword} whose anchor the root or one schema has")
        return outermost or found


def _joined(base: str, uri: str) -> str:
    """A URI read beside another."""
    is_opaque = base and not base.partition(":")[2].startswith("/") and ":" in base
    return uri if is_opaque else urljoin(base, uri)


def _pointed(node: Node, pointer: str) -> Node:
    """The schema at a JSON pointer from another one."""
    try:
        value = value_at(node.schema, pointer)
    except LookupError:
        raise InvalidSchema("a JSON pointer that resolves within the schema") from None
    if not isinstance(value, Mapping | bool):
        raise InvalidSchema("a pointer to a schema")
    return Node(value, at(node.path, *steps_of(pointer)))


def _published(uri: str) -> Any:
    """A document that defines JSON Schema; None for any other, and where none is installed."""
    if not uri.startswith(PUBLISHED):
        return None
    try:
        registry = import_module("jsonschema_specifications").REGISTRY
    except ImportError:
        return None
    found = registry.get(uri) or registry.get(f"{uri}#")
    return None if found is None else found.contents
