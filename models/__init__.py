"""The embedded model: the world it was taught (`world`), how (`train`), how well (`evaluate`), and
itself (`tiny/`).
"""
