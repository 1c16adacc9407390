"""The embedded model: its checkpoint (`tiny/`), its eyes (`tiny_vision/`), and how both were
trained and measured (`training`).

Entry: none; the runtime reads the folder `tiny/` as it reads any checkpoint, and `core/model/hub`
puts it together with `tiny_vision/`.
May import nothing.
Never knows the runtime. The wheel holds both folders and leaves out `training`.
"""
