"""Where does an engine's step go, and what do busy threads cost it?"""
