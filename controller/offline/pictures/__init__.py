"""Pictures of plans and models as SVG, PNG or PDF, by the file's suffix.

matplotlib is an extra (`headgate[plot]`) and is imported when a picture is drawn. `format_of` tells
beforehand whether a picture can be written, so that a command fails before it computes.
"""

from headgate.controller.offline.pictures.comparison import comparison_picture
from headgate.controller.offline.pictures.curves import model_pairs_picture, model_picture
from headgate.controller.offline.pictures.drawing import format_of
from headgate.controller.offline.pictures.plan import plan_picture
from headgate.controller.offline.pictures.whatif import whatif_picture

__all__ = [
    "comparison_picture",
    "format_of",
    "model_pairs_picture",
    "model_picture",
    "plan_picture",
    "whatif_picture",
]
