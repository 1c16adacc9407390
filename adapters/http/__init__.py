"""The server: every client that speaks OpenAI or SGLang, over one backend. Names the room."""
