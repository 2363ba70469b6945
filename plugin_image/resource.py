"""The image's resource under the name that states from before ``divvy.image`` have recorded.

Without it such a stack could not be destroyed before its next ``up``.
"""

from divvy.image.resource import Builder as Builder
