"""LangChain: a chat model and an LLM on our runtime."""
