"""Programs of DSPy, LangChain, Guidance and SGLang, and clients written elsewhere, unchanged."""
