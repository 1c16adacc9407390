"""DSPy: a program runs on our runtime by changing its LM."""
