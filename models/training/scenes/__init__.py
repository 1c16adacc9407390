"""Drawn scenes and questions about them: what the embedded model learns to see.

Entry: `scene.scene_of` and `questions.lesson`.
May import numpy and `models.training.world`.
Never known to the runtime, and never knows tokens or training.
"""
