"""The embedded model: its checkpoint (`tiny/`), and how it was trained and measured (`training`).

Entry: none; the runtime reads the folder `tiny/` as it reads any checkpoint.
May import nothing.
Never knows the runtime. The wheel holds `tiny/` and leaves out `training`.
"""
