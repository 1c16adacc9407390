"""Tasks about that world, as training texts: chats, tool calls, extraction, agents.

Entry: `world.documents`, all tasks in their proportions.
May import `models.training.world`.
Never knows tokens or training.
"""
