"""From the body of a request to calls: checked field by field, submitted, awaited together.

Entry: `work.Work`, the calls of one request.
May import `core.api`, `core.common`, `core.media`, `adapters.common` and the packages of
`adapters.http` below.
Never knows the shape of an answer.
"""
