"""What both ends of the wire share: bodies, hints and calls as JSON.

Entry: `callwire`, values of the protocol as JSON and back; `wire.Body`, fields of OpenAI's kind.
May import `core.api` and `core.common`.
Never knows a server or a backend.
"""
